// Kernels and chases on the small machine of sim_testing.hpp, against closed forms. Expected times are stated here, in
// us.
#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

Program by_sm(const std::string& benchmark, const std::string& src, const std::string& dst, u64 bytes,
              Params params = {}, Engine engine = Engine::sm) {
  const auto host = engine == Engine::cpu ? "pageable" : "pinned";
  const auto memory = [&](const std::string& place) { return place.starts_with("numa") ? host : "device"; };
  auto c = copy_case(benchmark, src, memory(src), dst, memory(dst), bytes, std::move(params));
  c.engine = engine;
  return build_program(c);
}

// One block of 512 threads has 32 KiB in flight and needs 0.2 us to read them and 0.1 us to write them.
constexpr double tile = 32768 * 1e-3;  // us at 1 GB/s

}  // namespace

TEST_CASE("one block copies a tile in the time of its load plus the time of the block itself") {
  const auto sim = make_sim(toy(), 1);
  const double setup = 2 + 0.5;  // launch, and the last load
  check_us(slope(*sim, by_sm("local", "gpu:0", "gpu:0", megabyte, {{"blocks", "1"}})), setup + 1000 / (tile / 0.8));
  check_us(slope(*sim, by_sm("local", "gpu:0", "gpu:0", megabyte, {{"blocks", "2"}, {"threads", "256"}})),
           setup + 1000 / (tile / 0.8));
  check_us(slope(*sim, by_sm("read", "gpu:0", "gpu:0", megabyte, {{"blocks", "1"}})), setup + 1000 / (tile / 0.7));
  check_us(slope(*sim, by_sm("write", "gpu:0", "gpu:0", megabyte, {{"blocks", "1"}})), 2 + 1000 / (tile / 0.6));
}

TEST_CASE("with a block on every SM, the rate is what SMs reach of memories and links") {
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, by_sm("local", "gpu:0", "gpu:0", megabyte)),
           2 + 0.5 + 1000 / 250.0);  // half of 1000 GB/s, read and written
  check_us(slope(*sim, by_sm("h2d", "numa:0", "gpu:0", megabyte)), 2 + 1.1 + 1000 / 5.0);  // 12.5 GB/s x 0.4
  check_us(slope(*sim, by_sm("d2h", "gpu:0", "numa:0", megabyte)), 2 + 0.5 + 0.5 + 1000 / 5.0);
  check_us(slope(*sim, by_sm("d2d", "gpu:0", "gpu:1", megabyte)), 2 + 0.5 + 0.25 + 1000 / 40.0);  // pushed
  check_us(slope(*sim, by_sm("d2d", "gpu:0", "gpu:1", megabyte, {{"initiator", "dst"}})),
           2 + 1.0 + 1000 / 40.0);  // pulled
  check_us(slope(*sim, by_sm("h2d", "numa:0", "gpu:0", megabyte, {}, Engine::tma)), 2 + 1.1 + 1000 / 5.0);
}

TEST_CASE("SMs can reach a different fraction of a link in each direction") {
  auto machine = toy();
  machine["link"][0]["kernel_back_efficiency"] = 0.2;
  const auto sim = make_sim(machine, 1);
  check_us(slope(*sim, by_sm("h2d", "numa:0", "gpu:0", megabyte)), 2 + 1.1 + 1000 / 5.0);        // 12.5 GB/s x 0.4
  check_us(slope(*sim, by_sm("d2h", "gpu:0", "numa:0", megabyte)), 2 + 0.5 + 0.5 + 1000 / 2.5);  // x 0.2
  check_us(slope(*sim, by_sm("read", "numa:0", "gpu:0", megabyte)), 2 + 1.1 + 1000 / 5.0);
  check_us(slope(*sim, by_sm("write", "gpu:0", "numa:0", megabyte)), 2 + 0.5 + 1000 / 2.5);
}

TEST_CASE("pages beyond the reach of a GPU's TLB wait for page-table walks, one after the other") {
  auto machine = toy();
  auto& kernel = machine["kernel"];
  kernel["host_reach_mib"] = 2e6 / mib;
  kernel["host_page_kib"] = 4;
  kernel["host_walk_us"] = 3.2768;  // 1.25 GB/s where every page misses
  const auto sim = make_sim(machine, 1), all_in_reach = make_sim(toy(), 1);
  // Half of the four slices of 1 MB are in reach.
  check_us(slope(*sim, by_sm("h2d", "numa:0", "gpu:0", megabyte)), 2 + 1.1 + 1000 / 2.5);
  check_us(slope(*sim, by_sm("write", "gpu:0", "numa:0", megabyte)), 2 + 0.5 + 1000 / 2.5);
  // Bidirectional: a quarter of the eight slices is in reach, and each direction gets half of the walks.
  check_us(slope(*sim, by_sm("exchange", "numa:0", "gpu:0", megabyte)), 2 + 1.1 + 0.5 + 1000 / (1.25 / 0.75 / 2));
  const auto bidirectional = by_sm("h2d", "numa:0", "gpu:0", megabyte, {{"bidirectional", "true"}});
  CHECK(2e6 / slope(*sim, bidirectional) == doctest::Approx(1.25e9 / 0.75).epsilon(0.01));
  // Data in reach, the GPUs' own memories and copy engines are not affected.
  const auto same = [&](const Program& p) { CHECK(slope(*sim, p) == slope(*all_in_reach, p)); };
  same(by_sm("h2d", "numa:0", "gpu:0", megabyte / 2));
  same(by_sm("local", "gpu:0", "gpu:0", 8 * megabyte));
  same(by_sm("d2d", "gpu:0", "gpu:1", 8 * megabyte));
  same(by_sm("h2d", "numa:0", "gpu:0", 8 * megabyte, {}, Engine::ce));
  // A step of a chase through 2 MiB finds its page in reach or waits for a walk.
  const double missing = 1 - 2e6 / (2 * mib);
  check_us(slope(*sim, by_sm("latency", "numa:0", "gpu:0", 0)), 1.1 + missing * 3.2768);
}

TEST_CASE("pages that another GPU reads take nothing of a GPU's reach") {
  auto machine = toy();
  machine["kernel"]["host_reach_mib"] = 4e6 / (1 << 20);  // the four slices of 1 MB that each GPU reads
  machine["kernel"]["host_page_kib"] = 4;
  machine["kernel"]["host_walk_us"] = 3.2768;
  const auto sim = make_sim(machine, 1);
  const auto one = by_sm("read", "numa:0", "gpu:0", megabyte), other = by_sm("read", "numa:1", "gpu:1", megabyte);
  check_us(slope(*sim, one), 2 + 1.1 + 1000 / 5.0);
  check_us(slope(*sim, together({one, other})), 2 + 1.1 + 1000 / 5.0);
}

TEST_CASE("a bidirectional kernel has a link for each direction") {
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, by_sm("exchange", "numa:0", "gpu:0", megabyte)), 2 + 1.1 + 0.5 + 1000 / 5.0);
}

TEST_CASE("a bidirectional block has half of its threads per direction; an SM's threads limit its number of blocks") {
  const auto sim = make_sim(toy(), 1);
  const double half = tile / 2 / (1.1 + 0.3);  // GB/s: its slowest load plus its own tile times
  check_us(slope(*sim, by_sm("exchange", "numa:0", "gpu:0", megabyte, {{"blocks", "1"}})),
           2 + 1.1 + 0.5 + 1000 / std::min(half, 5.0));
  auto wide = toy();
  wide["gpu"][0]["memory_gbps"] = 1e6;  // then only the capacity of the 10 SMs limits: 40 blocks
  const auto fast = make_sim(wide, 1);
  check_us(slope(*fast, by_sm("local", "gpu:0", "gpu:0", megabyte, {{"blocks", "128"}})),
           2.5 + 1000 / (40 * tile / 0.8));
}

TEST_CASE("verification compares both directions of a bidirectional kernel") {
  auto machine = toy();
  machine["fault"] = {{{"kind", "corrupt"}, {"match", "bad*"}}};
  const auto sim = make_sim(machine, 1);
  const auto session = sim->prepare(by_sm("exchange", "numa:0", "gpu:0", 4096), "good#0");
  CHECK(sim->run(*session, {1, {{2}}, true}).verdict->checked_bytes == 2 * 2 * 4096);
}

TEST_CASE("a chase step takes the latency to the memory, of the memory, and back") {
  const auto sim = make_sim(toy(), 1);
  const auto step = [&](const std::string& src, const std::string& dst, Engine engine) {
    return slope(*sim, by_sm("latency", src, dst, 0, {}, engine), 100);
  };
  check_us(step("gpu:0", "gpu:0", Engine::sm), 0.5);
  check_us(step("gpu:1", "gpu:0", Engine::sm), 0.5 + 2 * 0.25);
  check_us(step("numa:0", "gpu:0", Engine::sm), 0.1 + 2 * 0.5);
  check_us(step("numa:0", "numa:0", Engine::cpu), 0.1);
  check_us(step("numa:1", "numa:0", Engine::cpu), 0.1 + 2 * 0.25);
}

TEST_CASE("a chase takes the same time on every SM of a model; an SM that the model lacks is refused") {
  const auto sim = make_sim(toy(), 1);  // the toy machine has 10 SMs
  for (const char* sm : {"0", "5", "9"}) {
    check_us(slope(*sim, by_sm("latency", "gpu:0", "gpu:0", 0, {{"sm", sm}}), 100), 0.5);
    check_us(slope(*sim, by_sm("latency", "gpu:1", "gpu:0", 0, {{"sm", sm}, {"range", "64MiB"}}), 100), 0.5 + 2 * 0.25);
    check_us(slope(*sim, by_sm("latency", "numa:0", "gpu:0", 0, {{"sm", sm}}), 100), 0.1 + 2 * 0.5);
  }
  for (const char* sm : {"10", "255"})
    CHECK(sim->supports(by_sm("latency", "gpu:1", "gpu:0", 0, {{"sm", sm}})).why_not ==
          std::string{"gpu:0 has no SM "} + sm + ": it has 10 SMs, numbered from 0");
}

TEST_CASE("the text of a program shows the SM of its chase, and an invalid program on one SM is refused") {
  const auto on_sm = [](const char* sm) { return by_sm("latency", "gpu:0", "gpu:0", 0, {{"sm", sm}}); };
  CHECK(to_text(on_sm("33")).find("kernel chase <sms, 1> on SM 33 dependent 1 read r0[0 +2097152] width 8") !=
        std::string::npos);
  CHECK(to_text(on_sm("any")) == to_text(by_sm("latency", "gpu:0", "gpu:0", 0)));
  CHECK(to_text(on_sm("any")).find("kernel chase <1, 1> dependent 1") != std::string::npos);
  CHECK_THROWS_WITH_AS((void)on_sm("256"), doctest::Contains("sm is any, 0 to 255, not '256'"), Error);
  CHECK_THROWS_WITH_AS((void)by_sm("latency", "numa:0", "numa:0", 0, {{"sm", "0"}}, Engine::cpu),
                       doctest::Contains("it has no parameter 'sm'"), Error);
  const auto refused = [&](auto change, const char* words) {
    auto p = on_sm("0");
    change(p.actors[0], std::get<Kernel>(p.actors[0].loop[0]));
    CHECK_THROWS_WITH_AS(validate(p), doctest::Contains(words), Error);
  };
  refused([](Actor&, Kernel& kernel) { kernel.id = KernelId::read; }, "actor a0 loop: only a chase is on one SM");
  refused([](Actor&, Kernel& kernel) { kernel.dependent_steps = 0; }, "only a chase is on one SM");
  refused([](Actor&, Kernel& kernel) { kernel.shape.blocks = 1; },
          "a kernel that is bound to an SM has one block on each");
  refused([](Actor& actor, Kernel&) { actor.kind = ActorKind::cpu_thread; }, "a CPU has no SMs");
}

TEST_CASE("kernels that the model lacks are not supported, with the reason") {
  const auto why = [](const nlohmann::json& machine, const Program& program) {
    return make_sim(machine, 1)->supports(program).why_not;
  };
  auto without = toy();
  without.erase("kernel");
  CHECK(why(without, by_sm("local", "gpu:0", "gpu:0", 8)).find("[kernel]") != std::string::npos);
  auto without_peer = toy();
  without_peer.erase("peer");
  CHECK(why(without_peer, by_sm("read", "gpu:1", "gpu:0", 8)).find("peer access") != std::string::npos);
  CHECK(why(without_peer, by_sm("read", "gpu:0", "gpu:0", 8)).empty());
  CHECK(why(toy(), by_sm("latency", "gpu:0", "gpu:0", 0, {{"cache", "hot"}})).find("caches") != std::string::npos);
  CHECK(why(toy(), by_sm("latency", "gpu:0", "numa:0", 0, {}, Engine::cpu)).find("not mapped") != std::string::npos);
}

TEST_CASE("narrow accesses have fewer bytes in flight and need the same time for a tile") {
  const auto sim = make_sim(toy(), 1);
  const auto read = [&](const char* width, const char* blocks) {
    return slope(*sim, by_sm("read", "gpu:0", "gpu:0", megabyte, {{"width", width}, {"blocks", blocks}}));
  };
  check_us(read("16", "1"), 2.5 + 1000 / (tile / 0.7));
  check_us(read("8", "1"), 2.5 + 1000 / (tile / 2 / 0.7));
  check_us(read("4", "1"), 2.5 + 1000 / (tile / 4 / 0.7));
  // The paper's launch shape still saturates a link: 256 blocks of 256 threads, more than the 10 SMs hold.
  check_us(
      slope(*sim, by_sm("read", "numa:0", "gpu:0", megabyte, {{"width", "4"}, {"blocks", "256"}, {"threads", "256"}})),
      2 + 1.1 + 1000 / 5.0);
  check_us(
      slope(*sim, by_sm("write", "gpu:0", "numa:0", megabyte, {{"width", "4"}, {"blocks", "256"}, {"threads", "256"}})),
      2 + 0.5 + 1000 / 5.0);
}

TEST_CASE("each strided or random access is one request for a sector, or for half a sector if it writes to a peer") {
  auto machine = toy();
  machine["kernel"]["packet_bytes"] = 32;  // half of the packet of a sector, a fifth of the packet of a line
  const auto sim = make_sim(machine, 1);
  const double sectors = 32 * 7813, small = (32 + 32) / 32.0 / ((128 + 32) / 128.0), halves = 16 * 7813,
               smaller = (16 + 32) / 16.0 / ((128 + 32) / 128.0);
  for (const char* width : {"4", "8", "16"})
    for (const char* order : {"linear", "random"}) {
      const Params params{{"width", width}, {"stride", "128"}, {"order", order}};
      check_us(slope(*sim, by_sm("read", "numa:0", "gpu:0", megabyte, params)), 2 + 1.1 + sectors / 5e3 * small);
      check_us(slope(*sim, by_sm("write", "gpu:0", "gpu:1", megabyte, params)), 2 + 0.25 + halves / 40e3 * smaller);
    }
  // At a stride of 32 B all sectors of a line are one request.
  check_us(slope(*sim, by_sm("read", "numa:0", "gpu:0", megabyte, {{"stride", "32"}})), 2 + 1.1 + 1000 / 5.0);
  // A tile is 2048 sectors: 8 times the requests of contiguous accesses.
  check_us(slope(*sim, by_sm("read", "gpu:0", "gpu:0", megabyte, {{"blocks", "1"}, {"stride", "128"}})),
           2.5 + sectors * 1e-3 / (2 * tile / (0.5 + 8 * 0.2)));
  // If the link is not the limit, the peer's memory still writes whole sectors.
  auto wide = machine;
  wide["gpu"][0]["memory_gbps"] = 20;
  check_us(slope(*make_sim(wide, 1), by_sm("write", "gpu:0", "gpu:1", megabyte, {{"stride", "128"}})),
           2 + 0.25 + sectors / 10e3);  // SMs reach half of its rate
  // A flow states the requested bytes; the link counts the moved bytes.
  const auto program = by_sm("read", "numa:0", "gpu:0", megabyte, {{"width", "4"}, {"stride", "1024"}});
  CHECK(program.flows[0].bytes == 4 * 977);
  const auto session = sim->prepare(program, "key#0");
  CHECK(sim->run(*session, {1, {{1}}, false}).links.at(0).bytes == 32 * 977);
}

TEST_CASE("random order walks the page table once per access, linear order once per page") {
  auto machine = toy();
  auto& kernel = machine["kernel"];
  kernel["host_reach_mib"] = 2e6 / (1 << 20);
  kernel["host_page_kib"] = 4;
  kernel["host_walk_us"] = 3.2768;
  const auto sim = make_sim(machine, 1);
  const auto seconds_of = [&](const char* order, const char* stride) {
    return slope(*sim, by_sm("read", "numa:0", "gpu:0", 4'096'000, {{"order", order}, {"stride", stride}}));
  };
  const double missing = 1 - 2e6 / (4 * 4'096'000);                           // four slices
  check_us(seconds_of("linear", "1024"), 2 + 1.1 + missing * 1000 * 3.2768);  // 1000 pages
  check_us(seconds_of("random", "1024"), 2 + 1.1 + missing * 4000 * 3.2768);  // 4000 lines
  check_us(seconds_of("linear", "4096"), 2 + 1.1 + missing * 1000 * 3.2768);
}

TEST_CASE("bidirectional accesses have a link per direction, between peers and between a GPU and its host") {
  const auto sim = make_sim(toy(), 1);
  const Params bidirectional{{"bidirectional", "true"}};
  check_us(slope(*sim, by_sm("read", "gpu:0", "gpu:1", megabyte, bidirectional)), 2 + 1.0 + 1000 / 40.0);
  check_us(slope(*sim, by_sm("write", "gpu:0", "gpu:1", megabyte, bidirectional)), 2 + 0.25 + 1000 / 40.0);
  check_us(slope(*sim, by_sm("read", "numa:0", "gpu:0", megabyte, bidirectional)), 2 + 1.1 + 1000 / 5.0);
}

TEST_CASE("data that fits the L2 cache takes no memory bandwidth") {
  auto machine = toy();
  machine["gpu"][0]["l2_mib"] = 2;
  machine["gpu"][0]["l2_gbps"] = 2000;
  machine["gpu"][0]["sms"] = 1000;  // so many that the SMs are not the limit
  const auto sim = make_sim(machine, 1);
  const auto same_bytes = [](Program program) {  // hot: every iteration uses the same bytes
    for (auto& region : program.regions) region.bytes /= 4;
    for (auto& actor : program.actors)
      for (auto& step : actor.loop) {
        if (auto* move = std::get_if<Move>(&step)) move->from.slices = move->to.slices = 1;
        else std::get<Kernel>(step).traffic[0].span.slices = 1;
      }
    return program;
  };
  const Params hot{{"cache", "hot"}};
  const auto seconds_of = [&](const char* benchmark, const char* dst, u64 bytes, const Params& params) {
    return slope(*sim, same_bytes(by_sm(benchmark, "gpu:0", dst, bytes, params)));
  };
  check_us(seconds_of("read", "gpu:0", megabyte, hot), 2.5 + 1000 / 2000.0);
  check_us(seconds_of("read", "gpu:0", megabyte, {}), 2.5 + 1000 / 500.0);
  check_us(seconds_of("local", "gpu:0", megabyte, hot), 2.5 + 2000 / 2000.0);     // read and written
  check_us(seconds_of("local", "gpu:0", 2 * megabyte, hot), 2.5 + 4000 / 500.0);  // two buffers do not fit
  check_us(seconds_of("read", "gpu:1", megabyte, hot), 2 + 1.0 + 1000 / 40.0);    // the L2 does not help across a link
  CHECK(make_sim(toy(), 1)->supports(by_sm("read", "gpu:0", "gpu:0", 8, hot)).why_not.find("l2_gbps") !=
        std::string::npos);
}

TEST_CASE(
    "CS-35: with the paper's launch shape, zero-copy equals explicit copies on AC922, and reads are 10 GB/s slower on "
    "S822LC") {
  const Params paper{{"width", "4"}, {"blocks", "256"}, {"threads", "256"}};
  const auto rate = [&](const char* name, const Program& program) {
    return static_cast<double>(program.flows[0].bytes) / slope(*make_sim(exact(bundled(name)), 1), program) * 1e-9;
  };
  const auto gbps = [&](const char* name, const char* benchmark, bool in, Engine engine) {
    return rate(name,
                in ? by_sm(benchmark, "numa:0", "gpu:0", 64 << 20, engine == Engine::ce ? Params{} : paper, engine)
                   : by_sm(benchmark, "gpu:0", "numa:0", 64 << 20, engine == Engine::ce ? Params{} : paper, engine));
  };
  CHECK(gbps("ac922", "read", true, Engine::sm) > 0.93 * gbps("ac922", "h2d", true, Engine::ce));
  CHECK(gbps("ac922", "write", false, Engine::sm) > 0.93 * gbps("ac922", "d2h", false, Engine::ce));
  const double difference = gbps("s822lc", "h2d", true, Engine::ce) - gbps("s822lc", "read", true, Engine::sm);
  CHECK((difference > 8 && difference < 12));
  CHECK(gbps("s822lc", "write", false, Engine::sm) > 0.93 * gbps("s822lc", "d2h", false, Engine::ce));
}

TEST_CASE("verification finds a wrong byte in data that is only read or only written") {
  auto machine = toy();
  machine["fault"] = {{{"kind", "corrupt"}, {"match", "bad*"}}};
  const auto sim = make_sim(machine, 1);
  for (const char* benchmark : {"read", "write", "local"})
    for (const char* key : {"bad#0", "good#0"}) {
      const auto session = sim->prepare(by_sm(benchmark, "gpu:0", "gpu:0", 4096), key);
      const auto verdict = sim->run(*session, {1, {{2}}, true}).verdict;
      REQUIRE(verdict);
      CHECK(verdict->ok == (std::string{key} == "good#0"));
      CHECK(verdict->checked_bytes > 0);
    }
}

TEST_CASE("packed words cross a link with two bytes for each of the payload, and no thread has two of them under way") {
  const auto sim = make_sim(toy(), 1);
  const auto put = [&](const std::string& dst, const char* threads, const char* connections) {
    const Params params{{"word", "packed"}, {"threads", threads}, {"connections", connections}};
    return slope(*sim, by_sm("put", "gpu:0", dst, megabyte, params), 64) * 1e6;
  };
  // A thread stores 16 bytes each 0.5 us. The sender polls its own memory, and loads the first payload.
  const double polls = 0.5 + 0.5;
  CHECK(put("gpu:1", "1024", "1") == doctest::Approx(polls + 2 * 1000 / (1024 * 16 / 500.0)).epsilon(0.01));
  CHECK(put("gpu:1", "32", "1") == doctest::Approx(polls + 2 * 1000 / (32 * 16 / 500.0)).epsilon(0.01));
  CHECK(put("gpu:1", "1024", "8") == doctest::Approx(polls + 8 * 2 * 1000 / 40.0).epsilon(0.01));
  // A CPU thread loads lines of 64 bytes one after another, each in 0.1 us.
  CHECK(put("numa:0", "1024", "1") == doctest::Approx(2 * 1000 * 1000 / 64 * 0.1).epsilon(0.01));
}

TEST_CASE("packed words need a model that says how long a load takes") {
  auto machine = toy();
  machine.erase("kernel");
  machine.erase("atomic");
  const auto support = make_sim(machine, 1)->supports(by_sm("put", "gpu:0", "numa:0", 4096, {{"word", "packed"}}));
  CHECK_FALSE(support);
  CHECK(support.why_not.find("does not say how long a load takes") != std::string::npos);
}
