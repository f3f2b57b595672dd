// Managed memory on the small machine of sim_testing.hpp, against closed forms. All expected times are stated here, in
// us. A page has 64 KiB, a batch of GPU faults four pages, a CPU thread's fault two, a piece of a prefetch two.
#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;
constexpr double page_us = 65.536;  // a page at 1 GB/s

Program managed(const std::string& benchmark, const std::string& src, const std::string& dst, u64 bytes,
                Params params = {}) {
  auto c = copy_case(benchmark, src, "managed", dst, "managed", bytes, std::move(params));
  c.engine = benchmark == "prefetch" ? Engine::prefetch : Engine::fault;
  return build_program(c);
}

/// Time of a batch of GPU faults, by default over the link to the host: pages, latency of the route, rate.
double batch(double pages, double latency = 0.5, double gbps = 8) {
  return 20 + 3 * pages + latency + pages * page_us / gbps;
}

}  // namespace

TEST_CASE("a GPU's faults are handled in batches, and their pages cross the links") {
  const auto sim = make_sim(toy(), 1);
  const auto demand = [&](const std::string& src, const std::string& dst, u64 bytes, Params params = {}) {
    return single(*sim, managed("demand", src, dst, bytes, std::move(params)));
  };
  check_us(demand("numa:0", "gpu:0", 8), 2 + batch(1));  // whole pages move
  check_us(demand("numa:0", "gpu:0", 64_KiB), 2 + batch(1));
  check_us(demand("numa:0", "gpu:0", 64_KiB + 8), 2 + batch(2));
  check_us(demand("numa:0", "gpu:0", 1_MiB), 2 + 4 * batch(4));
  check_us(demand("numa:0", "gpu:0", 320_KiB), 2 + batch(4) + batch(1));
  check_us(demand("numa:0", "gpu:0", 1_MiB, {{"access", "read"}}), 2 + 4 * batch(4));
  check_us(demand("numa:1", "gpu:0", 1_MiB), 2 + 4 * batch(4, 0.75));
  check_us(demand("gpu:0", "gpu:1", 1_MiB), 2 + 4 * batch(4, 0.25, 16));
  check_us(demand("gpu:0", "gpu:1", 1_MiB, {{"peer", "off"}}), 2 + 4 * batch(4, 0.75 + 0.5, 10));  // through numa:1
}

TEST_CASE("CPU threads fault concurrently, and their pages share the link") {
  const auto sim = make_sim(toy(), 1);
  const auto demand = [&](const char* threads, u64 bytes) {
    return single(*sim, managed("demand", "gpu:0", "numa:0", bytes, {{"threads", threads}}));
  };
  const auto faults = [](double pages) { return 15 + 0.5 + pages * page_us / 4; };
  check_us(demand("1", 8), faults(1));
  check_us(demand("1", 1_MiB), 8 * faults(2));
  check_us(demand("4", 1_MiB), 2 * faults(8));
  check_us(demand("16", 1_MiB), faults(16));  // more threads than pages
  auto node = toy();
  node["numa"][0]["cpus"] = 4;
  const auto by_all = [&](Params params) {
    params["threads"] = "all";
    return single(*make_sim(node, 1), managed("demand", "gpu:0", "numa:0", 1_MiB, std::move(params)));
  };
  check_us(by_all({}), 2 * faults(8));
  node["managed"]["cpu_reach_gbps"] = 0.5;  // accessed in GPU memory by four threads
  check_us(by_all({{"advice", "accessed_by"}}),
           single(*make_sim(node, 1),
                  managed("demand", "gpu:0", "numa:0", 1_MiB, {{"threads", "4"}, {"advice", "accessed_by"}})) *
               1e6);
}

TEST_CASE("each CPU fault in a block doubles the pages there, and threads in one block do not help each other") {
  auto machine = toy();
  machine["managed"]["cpu_block_pages"] = 16;  // 1 MiB; the first fault in a block brings two pages
  machine["managed"]["cpu_page_us"] = 2;
  const auto sim = make_sim(machine, 1);
  const auto demand = [&](const char* threads, u64 bytes, Params params = {}) {
    params["threads"] = threads;
    return single(*sim, managed("demand", "gpu:0", "numa:0", bytes, std::move(params)));
  };
  /// Time of the faults of one thread and of the pages that every thread touches.
  const auto chunk = [](double faults, double pages, double threads = 1) {
    return faults * 15 + 0.5 + pages * 2 + threads * pages * page_us / 4;
  };
  check_us(demand("1", 8), chunk(1, 1));
  check_us(demand("1", 128_KiB), chunk(1, 2));
  check_us(demand("1", 192_KiB), chunk(2, 3));
  check_us(demand("1", 256_KiB), chunk(2, 4));
  check_us(demand("1", 320_KiB), chunk(3, 5));
  check_us(demand("1", 512_KiB), chunk(3, 8));
  check_us(demand("1", 576_KiB), chunk(4, 9));
  check_us(demand("1", 1_MiB), chunk(4, 16));
  check_us(demand("1", 2_MiB + 64_KiB), 2 * chunk(4, 16) + chunk(1, 1));
  for (const char* threads : {"2", "16"}) check_us(demand(threads, 1_MiB), chunk(4, 16));
  check_us(demand("2", 4_MiB), 2 * chunk(4, 16, 2));
  for (const char* threads : {"4", "16"}) check_us(demand(threads, 4_MiB), chunk(4, 16, 4));
  check_us(demand("4", 6_MiB), chunk(4, 16, 4) + chunk(3, 8, 4));  // the remainder is split evenly
  check_us(demand("2", 2_MiB, {{"touch", "all"}}), chunk(4, 16, 2) + 32 * page_us / (2 * 5));
}

TEST_CASE("dependent CPU faults double the pages of a block too, and a lone fault brings as many as the first") {
  auto machine = toy();
  machine["managed"]["cpu_block_pages"] = 16;
  machine["managed"]["cpu_page_us"] = 2;  // loads touch the pages that came
  const auto sim = make_sim(machine, 1);
  const auto step = [&](const char* distance, u32 steps) {
    return slope(*sim, managed("fault_latency", "gpu:0", "numa:0", 0, {{"step", distance}}), steps);
  };
  check_us(step("2MiB", 100), 15.5 + 2 * page_us / 4);
  // Of the 16 pages of a block, pages 0, 2, 4 and 8 fault. The same four fault in its 256 steps of 4 KiB.
  check_us(step("64KiB", 1024), (4 * 15.5 + 16 * page_us / 4 + 12 * 0.1) / 16);
  check_us(step("4KiB", 1024), (4 * 15.5 + 16 * page_us / 4 + 252 * 0.1) / 256);
}

TEST_CASE("the copy engine moves a prefetch in pieces") {
  const auto sim = make_sim(toy(), 1);
  const auto prefetch = [&](const std::string& src, const std::string& dst, u64 bytes, Params params = {}) {
    return single(*sim, managed("prefetch", src, dst, bytes, std::move(params)));
  };
  check_us(prefetch("numa:0", "gpu:0", 8), 30 + 5 + 0.5 + page_us / 10);
  check_us(prefetch("numa:0", "gpu:0", 1_MiB), 30 + 8 * (5 + 0.5 + 2 * page_us / 10));
  check_us(prefetch("gpu:0", "numa:0", 1_MiB), 30 + 8 * (7 + 0.5 + 2 * page_us / 10));
  check_us(prefetch("gpu:0", "numa:0", 8),
           30 + 3.5 + 0.5 + page_us / 10);  // half a piece: the host's cost is per page
  check_us(prefetch("gpu:0", "gpu:1", 1_MiB), 30 + 8 * (5 + 0.25 + 2 * page_us / 40));
  check_us(prefetch("gpu:0", "gpu:1", 1_MiB, {{"peer", "off"}}), 30 + 8 * (5 + 0.75 + 0.5 + 2 * page_us / 10));
}

TEST_CASE("a kernel that touches another GPU's pages has a launch cost of its own and the same fault cost") {
  auto machine = toy();
  const auto demand = [&](const char* src) {
    return single(*make_sim(machine, 1), managed("demand", src, "gpu:1", 1_MiB));
  };
  const double from_gpu = demand("gpu:0"), from_host = demand("numa:0");
  machine["managed"]["peer_launch_us"] = 1.5;
  CHECK((from_gpu - demand("gpu:0")) * 1e6 == doctest::Approx(2 - 1.5));
  CHECK(demand("numa:0") == from_host);
}

TEST_CASE("pages move directly between GPUs if the route is NVLink only, with and without peer access") {
  auto machine = toy();
  const auto prefetch = [&](const char* peer) {
    return single(*make_sim(machine, 1), managed("prefetch", "gpu:0", "gpu:1", 1_MiB, {{"peer", peer}}));
  };
  const auto demand = [&](const char* peer, Params params = {}) {
    params["peer"] = peer;
    return single(*make_sim(machine, 1), managed("demand", "gpu:0", "gpu:1", 1_MiB, std::move(params)));
  };
  for (auto& link : machine["link"]) link["kind"] = "nvlink";
  CHECK(prefetch("off") == prefetch("on"));
  CHECK(demand("off") == demand("on"));
  CHECK(demand("off", {{"advice", "accessed_by"}}) == demand("on", {{"advice", "accessed_by"}}));
  machine["link"][2]["kind"] = "pcie";
  CHECK(prefetch("off") > 1.5 * prefetch("on"));
  machine["link"][2]["kind"] = "nvlink";
  machine.erase("peer");  // without peer capability, the NVLink route is not used
  check_us(prefetch("off"), 30 + 8 * (5 + 0.75 + 0.5 + 2 * page_us / 10));
}

TEST_CASE("bidirectional page moves have a link per direction") {
  const auto sim = make_sim(toy(), 1);
  const auto times = [&](const Program& program) {
    const auto session = sim->prepare(program, "key#0");
    const auto trace = sim->run(*session, {1, {{0, 0}, {1, 1}}, false});
    const auto duration = [&](u32 actor) {
      const auto took = [&](u32 b) { return trace.at(0, b, actor).exit_s - trace.at(0, b, actor).enter_s; };
      return took(1) - took(0);
    };
    return std::pair{duration(0), duration(1)};
  };
  const auto demand = times(managed("demand", "gpu:0", "numa:0", 1_MiB, {{"bidirectional", "true"}}));
  check_us(demand.first, 8 * (15.5 + 2 * page_us / 4));
  check_us(demand.second, 2 + 4 * batch(4));
  const auto prefetch = times(managed("prefetch", "numa:0", "gpu:0", 1_MiB, {{"bidirectional", "true"}}));
  check_us(prefetch.first, 30 + 8 * (5.5 + 2 * page_us / 10));
  check_us(prefetch.second, 30 + 8 * (7.5 + 2 * page_us / 10));
}

TEST_CASE("the latency of a fault is that of a batch of one page") {
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, managed("fault_latency", "numa:0", "gpu:0", 0), 100), batch(1));
  check_us(slope(*sim, managed("fault_latency", "gpu:0", "numa:0", 0), 100),
           15.5 + 2 * page_us / 4);  // the pages that a fault brings
}

TEST_CASE("short steps find pages that the faults before them brought") {
  const auto sim = make_sim(toy(), 1);
  const auto step = [&](const char* src, const char* dst, const char* distance) {
    return slope(*sim, managed("fault_latency", src, dst, 0, {{"step", distance}}), 1024);
  };
  check_us(step("numa:0", "gpu:0", "64KiB"), batch(1));                            // one page per step
  check_us(step("numa:0", "gpu:0", "4KiB"), (batch(1) + 15 * 0.5) / 16);           // the other 15 steps are loads
  check_us(step("gpu:0", "numa:0", "64KiB"), (15.5 + 2 * page_us / 4 + 0.1) / 2);  // a CPU fault brings two pages
  check_us(step("gpu:0", "numa:0", "4KiB"), (15.5 + 2 * page_us / 4 + 31 * 0.1) / 32);
}

TEST_CASE("the first fault in a region and in a block costs more") {
  auto machine = toy();
  machine["managed"]["page_kib"] = 16;
  machine["managed"]["gpu_region_us"] = 5;
  machine["managed"]["gpu_block_us"] = 100;
  const auto sim = make_sim(machine, 1);
  const double fault = 20 + 4 * 3 + 0.5 + page_us / 8;  // the fault brings its region
  const auto step = [&](const char* distance) {
    return slope(*sim, managed("fault_latency", "numa:0", "gpu:0", 0, {{"step", distance}}), 1024);
  };
  check_us(slope(*sim, managed("fault_latency", "numa:0", "gpu:0", 0), 100), fault + 5 + 100);
  check_us(step("64KiB"), fault + 5 + 100 / 32.0);
  check_us(step("4KiB"), (fault + 5 + 100 / 32.0 + 15 * 0.5) / 16);
  // Here a batch of four pages is a region, and 32 regions are a block.
  check_us(single(*sim, managed("demand", "numa:0", "gpu:0", 4_MiB)),
           2 + 64 * (20 + 12 + 0.5 + page_us / 8 + 5) + 2 * 100);
}

TEST_CASE(
    "each range of a batch costs a prefetch of its own, no piece spans two ranges, and discarded pages are not sent") {
  const auto sim = make_sim(toy(), 1);
  const auto prefetch = [&](Params params) {
    return single(*sim, managed("prefetch", "numa:0", "gpu:0", 1_MiB, std::move(params)));
  };
  check_us(prefetch({{"ranges", "1"}}), 30 + 8 * (5.5 + 2 * page_us / 10));
  check_us(prefetch({{"ranges", "8"}}), 8 * 30 + 8 * (5.5 + 2 * page_us / 10));
  check_us(prefetch({{"ranges", "64"}}), 64 * 30 + 16 * (5.5 + page_us / 10));  // pieces of one page
  check_us(prefetch({{"discard", "with"}}), 30 + 8 * 5.5);
  check_us(prefetch({{"discard", "before"}}), 60 + 8 * 5.5);
  const auto session = sim->prepare(managed("prefetch", "numa:0", "gpu:0", 1_MiB, {{"discard", "with"}}), "key#0");
  const auto trace = sim->run(*session, {1, {{1}}, true});
  CHECK(trace.verdict->ok);
  for (const auto& link : trace.links) CHECK(link.bytes == 0);
}

TEST_CASE(
    "MB-7: by advice, a GPU's accesses move pages, access them remotely after a fault, or remotely without a fault") {
  const auto sim = make_sim(toy(), 1);
  const auto bytes_and_time = [&](const char* src, const char* access, Params params) {
    params["access"] = access;
    const auto program = managed("demand", src, "gpu:0", 1_MiB, std::move(params));
    const auto session = sim->prepare(program, "key#0");
    u64 carried = 0;
    for (const auto& link : sim->run(*session, {1, {{1}}, false}).links) carried += link.bytes;
    return std::pair{carried, single(*sim, program) * 1e6};
  };
  for (const char* access : {"read", "write"}) {
    const bool reads = std::string{access} == "read";
    const double migrated = 2 + 4 * batch(4);
    for (const char* advice : {"none", "read_mostly", "preferred_dst"}) {
      CAPTURE(advice);
      const auto [carried, took] = bytes_and_time("numa:0", access, {{"touch", "all"}, {"advice", advice}});
      CHECK(carried == 1_MiB);
      CHECK(took == doctest::Approx(migrated));
    }
    // SMs reach 12.5 GB/s x 0.4. Without accessed_by, the 16 pages add four batches of four faults.
    const double remote_us = 2 + (reads ? 1.1 : 0.5) + 16 * page_us / 5;
    const auto check_remote = [&](const char* advice, double expected) {
      const auto [carried, took] = bytes_and_time("numa:0", access, {{"advice", advice}});
      CHECK(carried == 1_MiB);
      CHECK(took == doctest::Approx(expected));
    };
    check_remote("accessed_by", remote_us);
    check_remote("preferred_src", remote_us + 4 * 20 + 16 * 3);
    const double from_peer = 2 + (reads ? 0.5 + 0.5 : 0.25) + 16 * page_us / 40;
    CHECK(bytes_and_time("gpu:1", access, {{"advice", "accessed_by"}}).second == doctest::Approx(from_peer));
    CHECK(bytes_and_time("gpu:1", access, {{"advice", "accessed_by"}, {"peer", "off"}}).second ==
          doctest::Approx(2 + 4 * batch(4, 0.75 + 0.5, 10)));
  }
}

TEST_CASE(
    "by advice, CPU accesses move pages, or access them in GPU memory if CPUs reach it, mapped ahead or by faults") {
  const auto bytes_and_time = [](const nlohmann::json& machine, Params params) {
    const auto sim = make_sim(machine, 1);
    const auto program = managed("demand", "gpu:0", "numa:0", 1_MiB, std::move(params));
    const auto session = sim->prepare(program, "key#0");
    std::map<std::string, u64> carried;
    for (const auto& link : sim->run(*session, {1, {{1}}, false}).links) carried[link.link] += link.bytes;
    return std::pair{carried, single(*sim, program) * 1e6};
  };
  auto reaching = toy();
  reaching["managed"]["cpu_reach_gbps"] = 2;
  const double memcpy_gbps = toy()["numa"][0]["memcpy_gbps"];
  for (const u32 threads : {1u, 4u}) {
    // Each thread's fault brings two pages. The thread then touches their words at its copy rate.
    const double faults = 8 / threads * (15 + 0.5 + 2 * threads * page_us / 4),
                 words = 16 * page_us / (threads * memcpy_gbps);
    for (const auto& access : {"read", "write"}) {
      const Params base{{"access", access}, {"threads", std::to_string(threads)}};
      const auto with = [&](const char* name, const char* value) {
        Params all = base;
        all[name] = value;
        return all;
      };
      const std::map<std::string, u64> moved{{"bus gpu:0->numa:0", 1_MiB}};
      for (const auto& params : {with("touch", "all"), with("advice", "read_mostly"), with("advice", "preferred_dst")})
        for (const auto& machine : {toy(), reaching}) {
          const auto [carried, took] = bytes_and_time(machine, params);
          CHECK(carried == moved);
          CHECK(took == doctest::Approx(faults + words));
        }
      // CPUs that cannot map GPU pages: the driver moves the pages despite the advice.
      for (const char* advice : {"preferred_src", "accessed_by"}) {
        const auto [carried, took] = bytes_and_time(toy(), with("advice", advice));
        CHECK(carried == moved);
        CHECK(took == doctest::Approx(faults + words));
      }
      const std::map<std::string, u64> remote{
          {std::string{access} == "read" ? "bus gpu:0->numa:0" : "bus numa:0->gpu:0", 1_MiB}};
      const double remote_us = 0.5 + 16 * page_us / (2 * threads);  // below the link's 10 GB/s
      const auto [mapped, mapped_us] = bytes_and_time(reaching, with("advice", "accessed_by"));
      CHECK(mapped == remote);
      CHECK(mapped_us == doctest::Approx(remote_us));
      const auto [faulted, faulted_us] = bytes_and_time(reaching, with("advice", "preferred_src"));
      CHECK(faulted == remote);
      CHECK(faulted_us == doctest::Approx(remote_us + 8 / threads * 15));  // faults that move no page
    }
  }
}

TEST_CASE("every sample begins with the pages at home, and the number of pages limits its iterations") {
  const auto sim = make_sim(toy(), 1);
  const auto program = managed("demand", "numa:0", "gpu:0", 1_MiB);
  const auto session = sim->prepare(program, "key#0");
  const auto trace = sim->run(*session, {3, {{1}}, true});
  for (u32 sample = 0; sample < 3; ++sample)
    check_us(trace.at(sample, 0, 0).exit_s - trace.at(sample, 0, 0).enter_s, 1 + 2 + 4 * batch(4));
  CHECK(trace.verdict->ok);
  CHECK_THROWS_WITH_AS((void)sim->run(*session, {1, {{2}}, false}), doctest::Contains("allows at most 1 per sample"),
                       Error);
  const auto chain = sim->prepare(managed("fault_latency", "numa:0", "gpu:0", 0), "key#0");
  CHECK_NOTHROW((void)sim->run(*chain, {1, {{512}}, false}));
  CHECK_THROWS_AS((void)sim->run(*chain, {1, {{513}}, false}), Error);
}

TEST_CASE("resident pages cost no fault; half of the pages resident cost half of the faults") {
  const auto sim = make_sim(toy(), 1);
  auto program = managed("demand", "numa:0", "gpu:0", 512_KiB);
  program.most_iterations = 0;
  check_us(time_of(*sim, program, 2) - time_of(*sim, program, 1), 2);
  // Before every sample: a prefetch of the first four pages, after the prefetch that brings all pages home.
  program.actors[0].once.push_back(Prefetch{{0, 0, 256_KiB, 256_KiB, 1}, gpu(0)});
  check_us(single(*sim, program), 2 + batch(4));
}

TEST_CASE("links carry whole pages, to the destination and back home") {
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(managed("demand", "numa:0", "gpu:0", 100_KiB), "key#0");
  const auto links = sim->run(*session, {2, {{1}}, false}).links;
  REQUIRE(links.size() == 2);
  CHECK(links[0].bytes == 2 * 2 * 64_KiB);  // two pages, two samples
  CHECK(links[1].bytes == 2 * 64_KiB);      // before the second sample
}

TEST_CASE("managed memory that the model lacks is not supported, with the reason") {
  const auto small = managed("demand", "numa:0", "gpu:0", 1_MiB);
  CHECK(refusal(toy(), small).empty());
  auto without = toy();
  without.erase("managed");
  CHECK(refusal(without, small).find("[managed]") != std::string::npos);
  auto without_peer = toy();
  without_peer.erase("peer");
  CHECK(refusal(without_peer, managed("demand", "gpu:0", "gpu:1", 1_MiB)).find("peer access") != std::string::npos);
  CHECK(refusal(without_peer, managed("demand", "gpu:0", "gpu:1", 1_MiB, {{"peer", "off"}})).empty());
  CHECK(refusal(toy(), managed("demand", "numa:0", "gpu:0", 1_GiB)).empty());
  CHECK(refusal(toy(), managed("demand", "numa:0", "gpu:0", 1_GiB + 8)).find("1 GiB") != std::string::npos);
  CHECK(refusal(toy(), managed("prefetch", "numa:0", "gpu:0", 1_GiB, {{"bidirectional", "true"}})).find("2 GiB") !=
        std::string::npos);
  auto small_gpu = toy();
  small_gpu["gpu"][0]["memory_gib"] = 4;
  CHECK(
      refusal(small_gpu, managed("prefetch", "gpu:0", "numa:0", 512_MiB)).find("a tenth of the free memory of gpu:0") !=
      std::string::npos);
  CHECK(refusal(small_gpu, managed("prefetch", "gpu:0", "numa:0", 256_MiB)).empty());
  auto copied = small;
  copied.actors[0].loop = {Move{{0, 0, 8, 8, 1}, {0, 8, 8, 8, 1}, Engine::ce}};
  CHECK(refusal(toy(), copied).find("not copied") != std::string::npos);
  auto c = copy_case("demand", "numa:0", "system", "gpu:0", "system", 4096);
  c.engine = Engine::fault;
  CHECK(refusal(toy(), build_program(c)).find("HMM or ATS") != std::string::npos);
  auto three = managed("demand", "numa:0", "gpu:0", 1_MiB);
  three.actors[0].once.push_back(Prefetch{{0, 0, 8, 8, 1}, gpu(1)});
  CHECK(refusal(toy(), three).find("one other place") != std::string::npos);
}

TEST_CASE("verification finds a wrong byte in a page that has moved") {
  auto machine = toy();
  machine["fault"] = {{{"kind", "corrupt"}, {"match", "bad*"}}};
  const auto sim = make_sim(machine, 1);
  for (const char* key : {"bad#0", "good#0"}) {
    const auto session = sim->prepare(managed("demand", "numa:0", "gpu:0", 4096), key);
    const auto verdict = sim->run(*session, {2, {{0}, {1}}, true}).verdict;
    CHECK(verdict->ok == (std::string{key} == "good#0"));
    CHECK(verdict->checked_bytes > 0);
  }
}
