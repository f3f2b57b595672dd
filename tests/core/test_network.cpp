// Copies from one host to another on the simulation: known times, and what the model refuses.
#include <doctest.h>

#include "base/error.hpp"
#include "benchmarks/case.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

// Two hosts, each with two NUMA nodes, a GPU at node 0 behind a bus of 10 GB/s, and a card at node 0. A message costs
// 1 us; card and network add 0.5 us and 8 GB/s, and 2 us and 4 GB/s.
nlohmann::json two_hosts() {
  auto machine = toy();
  machine.erase("peer");
  machine["numa"][0]["places"] = {"host:0/numa:0", "host:0/numa:1", "host:1/numa:0", "host:1/numa:1"};
  machine["gpu"][0]["at"] = {{"host:0/numa:0", {"host:0/gpu:0"}}, {"host:1/numa:0", {"host:1/gpu:0"}}};
  machine["nic"] = {{{"places", {"host:0/nic:0", "host:1/nic:0"}}, {"message_us", 1}}};
  machine["link"] = nlohmann::json::parse(R"([
    {"name": "bus", "between": [["host:0/numa:0", "host:0/gpu:0"], ["host:1/numa:0", "host:1/gpu:0"]], "gbps": 10, "efficiency": 1, "latency_us": 0.5},
    {"name": "smp", "between": [["host:0/numa:0", "host:0/numa:1"], ["host:1/numa:0", "host:1/numa:1"]], "gbps": 20, "efficiency": 1, "latency_us": 0.25},
    {"name": "slot", "between": [["host:0/numa:0", "host:0/nic:0"], ["host:1/numa:0", "host:1/nic:0"]], "gbps": 8, "efficiency": 1, "latency_us": 0.5},
    {"name": "net", "between": [["host:0/nic:0", "host:1/nic:0"]], "gbps": 4, "efficiency": 1, "latency_us": 2}])");
  return machine;
}

constexpr double between_s = 3e-6, message_s = 1e-6;

Program network(const std::string& src, const std::string& dst, u64 bytes,
                std::map<std::string, std::string> params = {}) {
  const auto memory = [](const std::string& place) {
    return place.find("gpu") == std::string::npos ? "pinned" : "device";
  };
  const bool staged = params.contains("chunk");
  params.emplace("mode", "single");
  auto c =
      copy_case(staged ? "network_staged" : "network", src, memory(src), dst, memory(dst), bytes, std::move(params));
  c.engine = Engine::nic;
  return build_program(c);
}

double seconds(const nlohmann::json& machine, const Program& program) {
  const auto sim = make_sim(machine, 1);
  const auto support = sim->supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  return single(*sim, program);
}

}  // namespace

TEST_CASE("a message takes its own cost, the latency of its path, and its bytes at the rate of the narrowest link") {
  const auto machine = two_hosts();
  CHECK(seconds(machine, network("host:0/numa:0", "host:1/numa:0", 4_MiB)) ==
        about(message_s + between_s + 4 * mib / 4e9).epsilon(0.001));
  // From the other node the message also crosses the link between the nodes, at both ends.
  CHECK(seconds(machine, network("host:0/numa:1", "host:1/numa:1", 8)) ==
        about(message_s + between_s + 0.5e-6 + 2e-9).epsilon(0.001));
}

TEST_CASE("short messages between host memories are copied at both ends, and longer ones ask first") {
  auto machine = two_hosts();
  machine["nic"][0].update({{"eager_kib", 8}, {"eager_gbps", 4}, {"eager_far_gbps", 2}});
  const double sent = message_s + between_s, bytes = 8192;
  CHECK(seconds(machine, network("host:0/numa:0", "host:1/numa:0", 8_KiB)) ==
        about(sent + bytes / 4e9 + 2 * bytes / 4e9).epsilon(0.001));
  CHECK(seconds(machine, network("host:0/numa:1", "host:1/numa:0", 8_KiB)) ==
        about(sent + 0.25e-6 + bytes / 4e9 + bytes / 2e9 + bytes / 4e9).epsilon(0.001));
  CHECK(seconds(machine, network("host:0/numa:0", "host:1/numa:0", 16_KiB)) ==
        about(3 * sent + 2 * bytes / 4e9).epsilon(0.001));
}

TEST_CASE("a card reaches the memory of a GPU at its own rates, and reads long messages at another") {
  auto machine = two_hosts();
  CHECK(refusal(machine, network("host:0/gpu:0", "host:1/numa:0", 1_MiB)).find("gpu_read_gbps of its [[nic]]") !=
        std::string::npos);
  CHECK(refusal(machine, network("host:0/numa:0", "host:1/gpu:0", 1_MiB)).find("gpu_write_gbps") != std::string::npos);
  machine["nic"][0].update(
      {{"gpu_read_gbps", 2}, {"gpu_write_gbps", 3}, {"gpu_short_kib", 1024}, {"gpu_long_read_gbps", 1}});
  const double sent = message_s + between_s + 0.5e-6;  // the bus of one GPU
  CHECK(seconds(machine, network("host:0/gpu:0", "host:1/numa:0", 1_MiB)) == about(sent + mib / 2e9).epsilon(0.001));
  CHECK(seconds(machine, network("host:0/gpu:0", "host:1/numa:0", 2_MiB)) ==
        about(sent + 2 * mib / 1e9).epsilon(0.001));
  CHECK(seconds(machine, network("host:0/numa:0", "host:1/gpu:0", 2_MiB)) ==
        about(sent + 2 * mib / 3e9).epsilon(0.001));
  CHECK(seconds(machine, network("host:0/gpu:0", "host:1/gpu:0", 1_MiB)) ==
        about(sent + 0.5e-6 + mib / 2e9).epsilon(0.001));
}

TEST_CASE("a staged transfer takes the time of its legs in turn, and with two slots that of the slowest") {
  const auto machine = two_hosts();
  const double out = mib / 10e9, sent = mib / 4e9;  // legs of a MiB without their fixed costs
  const double whole =
      seconds(machine, network("host:0/gpu:0", "host:1/gpu:0", 16_MiB, {{"chunk", "whole"}, {"slots", "1"}}));
  CHECK(whole == about(16 * (2 * out + sent)).epsilon(0.01));
  const double buffered = seconds(machine, network("host:0/gpu:0", "host:1/gpu:0", 16_MiB, {{"chunk", "1MiB"}}));
  CHECK(buffered == about(2 * out + 16 * sent).epsilon(0.06));
  CHECK(buffered > 16 * sent);
  // From host memory there is no leg before the network.
  CHECK(seconds(machine, network("host:0/numa:0", "host:1/gpu:0", 16_MiB, {{"chunk", "whole"}, {"slots", "1"}})) ==
        about(16 * (out + sent)).epsilon(0.01));
  CHECK(seconds(machine, network("host:0/gpu:0", "host:1/numa:0", 16_MiB, {{"chunk", "whole"}, {"slots", "1"}})) ==
        about(16 * (out + sent)).epsilon(0.01));
}

TEST_CASE("all bytes of a transfer between hosts arrive in order, and every leg carries them") {
  for (const std::string chunk : {"whole", "64KiB", "1MiB"})
    for (const std::string slots : {"1", "2", "8"}) {
      const auto program = network("host:0/gpu:0", "host:1/gpu:0", 4_MiB, {{"chunk", chunk}, {"slots", slots}});
      const auto sim = make_sim(two_hosts(), 1);
      const auto session = sim->prepare(program, "network#0");
      const auto trace = sim->run(*session, {1, {std::vector<u32>(program.actors.size(), 1)}, true});
      CHECK(trace.verdict->ok);
      for (const auto& link : trace.links)
        if (link.link == "net host:0/nic:0->host:1/nic:0") CHECK(link.bytes >= 4_MiB);
    }
}

TEST_CASE("two transfers share the network") {
  auto program = network("host:0/numa:0", "host:1/numa:0", 4_MiB);
  const auto other = program;
  for (auto region : other.regions) program.regions.push_back(region);
  auto actor = other.actors[0];
  auto& move = std::get<Move>(actor.loop[0]);
  move.from.region = 2, move.to.region = 3;
  program.actors.push_back(actor);
  CHECK(seconds(two_hosts(), program) == about(message_s + between_s + 8 * mib / 4e9).epsilon(0.001));
}

TEST_CASE("a transfer between hosts that the model cannot run has a reason") {
  const auto reason = [](nlohmann::json machine, const std::string& src, const std::string& dst) {
    return refusal(machine, network(src, dst, 1_MiB));
  };
  auto silent = two_hosts();
  silent["nic"][0].erase("message_us");
  CHECK(reason(silent, "host:0/numa:0", "host:1/numa:0").find("what a message costs: message_us") != std::string::npos);
  auto cut = two_hosts();
  cut["link"].erase(3);
  CHECK(reason(cut, "host:0/numa:0", "host:1/numa:0").find("no route leads") != std::string::npos);
  auto without_card = two_hosts();
  without_card["link"].push_back(nlohmann::json::parse(
      R"({"name": "wire", "between": [["host:0/numa:0", "host:1/numa:0"]], "gbps": 1, "efficiency": 1, "latency_us": 0})"));
  CHECK(reason(without_card, "host:0/numa:0", "host:1/numa:0").find("no network card of either host") !=
        std::string::npos);
  auto c = copy_case("network", "host:0/numa:0", "pinned", "host:0/numa:1", "pinned", 1_MiB);
  c.engine = Engine::nic;
  CHECK_THROWS_WITH_AS((void)build_program(c), doctest::Contains("must be on different hosts"), Error);
}

TEST_CASE("network cards send pinned memory and GPU memory from their own host, in one piece") {
  const auto machine = two_hosts();
  auto program = network("host:0/numa:0", "host:1/numa:0", 1_MiB);
  program.regions[0].kind = MemKind::pageable;
  CHECK(refusal(machine, program).find("pinned host memory and GPU memory only") != std::string::npos);
  program = network("host:0/numa:0", "host:1/numa:0", 1_MiB);
  program.actors[0].place = parse_place("host:1/numa:0");
  CHECK(refusal(machine, program).find("CPU threads of the source's host") != std::string::npos);
}
