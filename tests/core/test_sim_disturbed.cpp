// Disturbances that the simulation can inject: shapes of noise, ramps, throttling, slow and flaky links, lying copies,
// and a hot CPU cache. The last tests cover hosts joined by NICs, and disks.
#include <algorithm>
#include <cmath>

#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

Program large(const std::string& src = "numa:0", const std::string& dst = "gpu:0") {
  const bool peers = src.starts_with("gpu") && dst.starts_with("gpu");
  return build_program(copy_case(peers                    ? "d2d"
                                 : src.starts_with("gpu") ? "d2h"
                                                          : "h2d",
                                 src, src.starts_with("gpu") ? "device" : "pinned", dst,
                                 dst.starts_with("gpu") ? "device" : "pinned", 16_MiB));
}

/// Seconds of one copy in each sample, without the cost of the clock (1 us on the toy machine).
std::vector<double> costs(const nlohmann::json& machine, const Program& program, u32 samples,
                          const std::string& key = "k#0", u64 seed = 1) {
  const auto sim = make_sim(machine, seed);
  const auto session = sim->prepare(program, key);
  std::vector<double> all;
  for (const auto& stamp : sim->run(*session, {samples, {{1}}, false}).stamps)
    all.push_back(stamp.exit_s - stamp.enter_s - 1e-6);
  return all;
}

double undisturbed_s() { return costs(toy(), large(), 1)[0]; }

double correlation(const std::vector<double>& values, std::size_t lag) {
  double mean = 0, same = 0, shifted = 0;
  for (const double v : values) mean += std::log(v) / static_cast<double>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) same += std::pow(std::log(values[i]) - mean, 2);
  for (std::size_t i = lag; i < values.size(); ++i)
    shifted += (std::log(values[i]) - mean) * (std::log(values[i - lag]) - mean);
  return shifted / same;
}

double spread(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double v : values) mean += std::log(v) / static_cast<double>(values.size());
  for (const double v : values) squares += std::pow(std::log(v) - mean, 2);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

nlohmann::json with_fault(nlohmann::json fault) {
  auto machine = toy();
  machine["fault"] = nlohmann::json::array({std::move(fault)});
  return machine;
}

}  // namespace

TEST_CASE("autocorrelated samples have the stated correlation and the spread of independent samples") {
  auto machine = toy();
  machine["noise"] = {{"sample", {{"rate", 0.02}}}};
  const auto independent = costs(machine, large(), 4000);
  CHECK(std::abs(correlation(independent, 1)) < 0.05);
  machine["noise"]["sample"]["shape"] = "autocorrelated";
  machine["noise"]["sample"]["correlation"] = 0.8;
  const auto correlated = costs(machine, large(), 4000);
  CHECK(correlation(correlated, 1) == about(0.8).epsilon(0.05));
  CHECK(correlation(correlated, 3) == about(0.512).epsilon(0.15));
  CHECK(spread(correlated) == about(0.02).epsilon(0.1));
  CHECK(costs(machine, large(), 4000) == correlated);
  CHECK(costs(machine, large(), 100, "k#1") != costs(machine, large(), 100));
  machine["noise"]["sample"]["correlation"] = 0;
  CHECK(costs(machine, large(), 50) == std::vector<double>(independent.begin(), independent.begin() + 50));
}

TEST_CASE("bimodal noise: the stated share of samples, rounds or machines is slower by the stated factor") {
  const double one = undisturbed_s(), two = 1.25 * one;
  const auto in_second = [&](const std::vector<double>& values) {
    double second = 0;
    for (const double v : values) {
      CHECK((v == about(one).epsilon(1e-9) || v == about(two).epsilon(1e-9)));
      second += v > (one + two) / 2;
    }
    return second / static_cast<double>(values.size());
  };
  auto machine = toy();
  const nlohmann::json modes = {{"shape", "bimodal"}, {"second", 1.25}, {"share", 0.3}};
  machine["noise"] = {{"sample", modes}};
  CHECK(in_second(costs(machine, large(), 3000)) == about(0.3).epsilon(0.1));
  machine["noise"] = {{"round", modes}};
  std::vector<double> rounds, machines;
  for (int round = 0; round < 600; ++round) {
    const auto samples = costs(machine, large(), 2, "k#" + std::to_string(round));
    CHECK(samples[0] == about(samples[1]).epsilon(1e-9));
    rounds.push_back(samples[0]);
  }
  CHECK(in_second(rounds) == about(0.3).epsilon(0.2));
  machine["noise"] = {{"machine", modes}};
  for (u64 seed = 0; seed < 600; ++seed) machines.push_back(costs(machine, large(), 1, "k#0", seed)[0]);
  CHECK(in_second(machines) == about(0.3).epsilon(0.2));
}

TEST_CASE("ramp: the first samples of a session are slower, by a decreasing factor") {
  const auto machine = with_fault({{"kind", "ramp"}, {"match", "k#0"}, {"samples", 4}, {"factor", 3}});
  const auto found = costs(machine, large(), 6);
  const double once = undisturbed_s();
  for (u32 sample = 0; sample < 6; ++sample)
    CHECK(found[sample] == about(once * std::max(1.0, 3 - 0.5 * sample)).epsilon(1e-9));
  CHECK(costs(machine, large(), 1, "k#1")[0] == about(once).epsilon(1e-9));
}

TEST_CASE("throttling: some samples are slower, and that trace and all later ones report it") {
  const auto machine =
      with_fault({{"kind", "throttle"}, {"match", "k#0"}, {"after_samples", 2}, {"samples", 3}, {"factor", 2}});
  const double once = undisturbed_s();
  const auto found = costs(machine, large(), 7);
  for (u32 sample = 0; sample < 7; ++sample)
    CHECK(found[sample] == about(sample >= 2 && sample < 5 ? 2 * once : once).epsilon(1e-9));
  const auto sim = make_sim(machine, 1);
  const auto reports_throttling = [](const Trace& trace) {
    return std::find(trace.notes.begin(), trace.notes.end(),
                     std::pair<std::string, std::string>{"throttled", "sw_thermal"}) != trace.notes.end();
  };
  const auto session = sim->prepare(large(), "k#0");
  CHECK_FALSE(reports_throttling(sim->run(*session, {2, {{1}}, false})));
  CHECK(reports_throttling(sim->run(*session, {1, {{1}}, false})));
  CHECK(reports_throttling(sim->run(*session, {9, {{1}}, true})));
  const auto other = sim->prepare(large(), "k#1");
  CHECK_FALSE(reports_throttling(sim->run(*other, {9, {{1}}, false})));
}

TEST_CASE("throttling also delays the time at which a copy to the host is known to have arrived") {
  auto machine = toy(), throttled = with_fault({{"kind", "throttle"}, {"samples", 9}, {"factor", 3}});
  const double at_once = costs(machine, large("gpu:0", "numa:0"), 1)[0];
  for (auto* one : {&machine, &throttled}) (*one)["copy"]["arrive_us"] = 2;
  CHECK((costs(machine, large("gpu:0", "numa:0"), 1)[0] - at_once) * 1e6 == about(2).epsilon(1e-6));
  CHECK(costs(throttled, large("gpu:0", "numa:0"), 1)[0] ==
        about(3 * costs(machine, large("gpu:0", "numa:0"), 1)[0]).epsilon(1e-9));
}

TEST_CASE("a slow link has the stated fraction of its rate, in one direction, for all traffic") {
  const auto machine = with_fault({{"kind", "slow"}, {"links", {"bus numa:0->gpu:*"}}, {"factor", 0.5}});
  const double bytes = 16 * 1048576.0;
  const auto slower = [&](const std::string& src, const std::string& dst) {
    return costs(machine, large(src, dst), 1)[0] - costs(toy(), large(src, dst), 1)[0];
  };
  CHECK(slower("numa:0", "gpu:0") == about(bytes / 5e9 - bytes / 10e9).epsilon(1e-6));
  CHECK(slower("numa:1", "gpu:0") == about(bytes / 5e9 - bytes / 10e9).epsilon(1e-6));
  CHECK(slower("gpu:0", "numa:0") * 1e6 == doctest::Approx(0));
  CHECK(slower("numa:1", "gpu:1") * 1e6 == doctest::Approx(0));
  CHECK(costs(machine, large(), 3)[2] == about(costs(machine, large(), 1)[0]));
}

TEST_CASE("a flaky link is slow in the stated share of the samples") {
  const auto machine =
      with_fault({{"kind", "flaky"}, {"links", {"bus numa:0->gpu:0"}}, {"factor", 0.5}, {"share", 0.2}});
  const double once = undisturbed_s(), more = 16 * 1048576.0 / 10e9;
  double slow = 0;
  for (const double cost : costs(machine, large(), 2000)) {
    CHECK((cost == about(once).epsilon(1e-9) || cost == about(once + more).epsilon(1e-9)));
    slow += cost > once + more / 2;
  }
  CHECK(slow / 2000 == about(0.2).epsilon(0.15));
  CHECK(costs(machine, large(), 50) == costs(machine, large(), 50));
}

TEST_CASE("verification finds copies between GPUs that end in time but deliver their bytes late or never") {
  for (const u64 late : {u64{0}, u64{1}}) {
    const auto machine = with_fault({{"kind", "lie"}, {"match", "k#0"}, {"after_samples", 2}, {"samples", late}});
    const auto sim = make_sim(machine, 1);
    const auto verdict = [&](const Program& program, const std::string& key) {
      const auto session = sim->prepare(program, key);
      CHECK(sim->run(*session, {2, {{64}}, true}).verdict->ok);  // before the fault begins
      return *sim->run(*session, {1, {{64}}, true}).verdict;
    };
    const auto wrong = verdict(large("gpu:0", "gpu:1"), "k#0");
    CHECK_FALSE(wrong.ok);
    CHECK(wrong.wrong_bytes == 4 * 16_MiB);
    CHECK(verdict(large("gpu:0", "gpu:1"), "k#1").ok);
    CHECK(verdict(large("numa:0", "gpu:1"), "k#0").ok);
    CHECK(costs(machine, large("gpu:0", "gpu:1"), 4) == costs(toy(), large("gpu:0", "gpu:1"), 4));
  }
  // Late bytes arrive one sample later.
  const auto sim = make_sim(with_fault({{"kind", "lie"}, {"match", "k#0"}, {"samples", 1}}), 1);
  const auto session = sim->prepare(large("gpu:0", "gpu:1"), "k#0");
  CHECK(sim->run(*session, {2, {{4}}, true}).verdict->ok);  // the second sample delivers the bytes of the first
  CHECK_FALSE(sim->run(*session, {1, {{0}}, true}).verdict->checked_bytes == 0);
}

TEST_CASE("verification starts afresh: late bytes of earlier samples do not arrive after it") {
  const auto sim = make_sim(with_fault({{"kind", "lie"}, {"match", "k#0"}, {"samples", 1}}), 1);
  const auto session = sim->prepare(large("gpu:0", "gpu:1"), "k#0");
  (void)sim->run(*session, {1, {{4}}, false});
  // Neither the four slices of that sample nor those of this one are there.
  CHECK(sim->run(*session, {1, {{4}}, true}).verdict->wrong_bytes == 2 * 4 * 16_MiB);
}

TEST_CASE("pageable copies peak at sizes that fit the hot CPU cache, and have no peak if it is flushed (CS-38)") {
  auto machine = toy();
  machine["numa"][0]["llc_mib"] = 8;
  machine["numa"][0]["llc_gbps"] = 20;
  const auto sim = make_sim(machine, 1);
  const std::string hot = "hot", cold = "cold";
  const auto gbps = [&](const std::string& benchmark, const std::string& dst, u64 bytes, const std::string& cache) {
    auto c = copy_case(benchmark, "numa:0", "pageable", dst, benchmark == "h2h" ? "pinned" : "device", bytes,
                       {{"cache", cache}});
    c.footprint_bytes = bytes;
    return static_cast<double>(bytes) / slope(*sim, build_program(c), 4) / 1e9;
  };
  for (const u64 bytes : {1_MiB, 4_MiB}) {
    CHECK(gbps("h2d", "gpu:0", bytes, hot) > 1.6 * gbps("h2d", "gpu:0", bytes, cold));
    CHECK(gbps("h2d", "gpu:0", bytes, hot) > 1.6 * gbps("h2d", "gpu:0", 16_MiB, hot));  // a peak
  }
  CHECK(gbps("h2d", "gpu:0", 16_MiB, hot) == about(gbps("h2d", "gpu:0", 16_MiB, cold)));
  CHECK(gbps("h2d", "gpu:0", 4_MiB, cold) < gbps("h2d", "gpu:0", 16_MiB, cold));  // with flushes the rate only rises
  CHECK(gbps("h2h", "numa:0", 2_MiB, hot) == about(20).epsilon(0.01));            // both buffers and the ring fit
  CHECK(gbps("h2h", "numa:0", 4_MiB, hot) == about(5).epsilon(0.01));
  CHECK(gbps("h2h", "numa:0", 2_MiB, cold) == about(5).epsilon(0.01));
  CHECK(gbps("h2h", "numa:1", 2_MiB, hot) == about(4).epsilon(0.01));  // across nodes the cache makes no difference

  // Lines that the core wrote are as hot as lines that it read.
  auto written = copy_case("h2h", "numa:0", "pageable", "numa:0", "pinned", 256_KiB, {{"cache", "written"}});
  written.footprint_bytes = 1_MiB;
  CHECK(256.0 * 1024 / slope(*sim, build_program(written), 2) / 1e9 == about(20).epsilon(0.01));

  // Lines that another core wrote come from its cache, at a lower rate.
  machine["numa"][0]["dirty_gbps"] = 8;
  const auto shared = make_sim(machine, 1);
  auto dirty = copy_case("h2h", "numa:0", "pageable", "numa:0", "pinned", 256_KiB, {{"cache", "dirty"}});
  dirty.footprint_bytes = 1_MiB;
  CHECK(256.0 * 1024 / slope(*shared, build_program(dirty), 2) / 1e9 == about(8).epsilon(0.01));
  CHECK_THROWS_WITH_AS((void)time_of(*shared, build_program(dirty), 5),
                       doctest::Contains("allows at most 4 per sample"), Error);
  CHECK(sim->supports(build_program(dirty)).why_not.find("dirty_gbps") != std::string::npos);

  const auto in_cache =
      build_program(copy_case("h2h", "numa:0", "pageable", "numa:0", "pinned", 4096, {{"cache", hot}}));
  CHECK(make_sim(toy(), 1)->supports(in_cache).why_not.find("llc_gbps") != std::string::npos);
  for (const bool to_gpu : {true, false}) {
    const auto by_engine = to_gpu ? copy_case("h2d", "numa:0", "pinned", "gpu:0", "device", 4096, {{"cache", hot}})
                                  : copy_case("d2h", "gpu:0", "device", "numa:0", "registered", 4096, {{"cache", hot}});
    CHECK(sim->supports(build_program(by_engine)).why_not.find("copy engines") != std::string::npos);
  }
}

TEST_CASE("hosts joined by NICs work independently, and copies between them are not supported") {
  auto machine = toy();
  const auto rename = [](nlohmann::json value, auto&& self) -> nlohmann::json {
    if (value.is_string()) {
      const auto text = value.get<std::string>();
      return text.starts_with("numa:") || text.starts_with("gpu:")
                 ? "host:" + std::string{text.back()} + "/" + text.substr(0, text.size() - 1) + "0"
                 : text;
    }
    nlohmann::json renamed = value.is_array() ? nlohmann::json::array() : value;
    if (value.is_array())
      for (const auto& item : value) renamed.push_back(self(item, self));
    if (value.is_object()) {
      renamed = nlohmann::json::object();
      for (const auto& [key, item] : value.items())
        renamed[self(key, self).template get<std::string>()] = self(item, self);
    }
    return renamed;
  };
  machine.erase("peer");
  machine["link"].erase(2);
  machine["link"].erase(1);
  machine = rename(machine, rename);
  machine["nic"] = {{{"places", {"host:0/nic:0", "host:1/nic:0"}}}};
  machine["link"].push_back(nlohmann::json::parse(
      R"({"name": "slot", "between": [["host:0/numa:0", "host:0/nic:0"], ["host:1/numa:0", "host:1/nic:0"]],
    "gbps": 8, "efficiency": 1, "latency_us": 0.5})"));
  machine["link"].push_back(nlohmann::json::parse(
      R"({"name": "net", "between": [["host:0/nic:0", "host:1/nic:0"]], "gbps": 4, "efficiency": 1, "latency_us": 1})"));
  const auto sim = make_sim(machine, 1);
  const auto program = [](const std::string& benchmark, const std::string& src, const std::string& dst) {
    return build_program(copy_case(benchmark, src, "pinned", dst, benchmark == "h2h" ? "pageable" : "device", 4_MiB));
  };
  for (const std::string host : {"host:0", "host:1"}) {
    const auto session = sim->prepare(program("h2d", host + "/numa:0", host + "/gpu:0"), "k#0");
    const auto trace = sim->run(*session, {1, {{2}}, true});
    CHECK(trace.verdict->ok);
    CHECK(trace.notes.at(0).second == "bus " + host + "/numa:0->" + host + "/gpu:0");
  }
  for (const auto& between :
       {program("h2d", "host:0/numa:0", "host:1/gpu:0"), program("h2h", "host:0/numa:0", "host:1/numa:0")})
    CHECK(sim->supports(between).why_not.find("different hosts") != std::string::npos);
  CHECK(sim->supports(program("h2d", "numa:0", "gpu:0")).why_not.find("has no numa:0") != std::string::npos);
}

TEST_CASE("a route can end at a disk but not pass it, and a disk holds files only") {
  auto machine = toy();
  machine["disk"] = {{{"places", {"disk:0"}}}};
  machine["link"][1] =
      nlohmann::json::parse(R"({"name": "sata", "between": [["numa:0", "disk:0"], ["disk:0", "numa:1"]],
    "gbps": 50, "efficiency": 1, "latency_us": 0})");
  const auto sim = make_sim(machine, 1);
  auto program = build_program(copy_case("h2d", "numa:0", "pinned", "gpu:0", "device", 4_MiB));
  CHECK(sim->supports(program));
  auto across = build_program(copy_case("h2d", "numa:1", "pinned", "gpu:0", "device", 4_MiB));
  CHECK(sim->supports(across).why_not == "no route leads from numa:1 to gpu:0");
  program.regions[0].at = parse_place("disk:0");
  CHECK(sim->supports(program).why_not == "disk:0 holds files, and no pinned memory");
  program.regions[0].at = parse_place("disk:/data");
  CHECK(sim->supports(program).why_not == "the machine toy has no disk:/data");
  program.regions[0].at = numa(0);
  program.actors[0].cpu = parse_place("disk:0");
  CHECK(sim->supports(program).why_not == "no host thread runs on disk:0");
  program.actors[0].place = parse_place("disk:0");
  CHECK(sim->supports(program).why_not == "a stream does not run on disk:0");
  Program bulk;
  bulk.regions = {{numa(0), MemKind::managed, 4_MiB}};
  bulk.actors.resize(1);
  bulk.actors[0].place = gpu(0);
  bulk.actors[0].loop = {Prefetch{{0, 0, 4_MiB}, parse_place("disk:0")}};
  CHECK(sim->supports(bulk).why_not == "the model's managed memory moves between its home and one other place");
  bulk.actors[0].loop = {Prefetch{{0, 0, 4_MiB}, gpu(0)}};
  CHECK(sim->supports(bulk));
}
