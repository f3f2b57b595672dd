// The simulated platform as the worker uses it: refusals, dependence of noise, faults, verification.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

Program h2d(u64 bytes) { return build_program(copy_case("h2d", "numa:0", "pinned", "gpu:0", "device", bytes)); }

std::vector<double> durations(const Trace& trace) {
  std::vector<double> all;
  for (const auto& stamp : trace.stamps) all.push_back(stamp.exit_s - stamp.enter_s);
  return all;
}

std::string parse_error(const nlohmann::json& machine) {
  try {
    (void)make_sim(machine, 1);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a program that the model cannot run is refused with the reason") {
  CHECK(refusal(toy(), h2d(8)).empty());
  CHECK(holds(refusal(toy(), build_program(copy_case("h2d", "numa:0", "pinned", "gpu:5", "device", 8))), "no gpu:5"));
  CHECK(holds(refusal(toy(), build_program(copy_case("h2d", "numa:4", "pinned", "gpu:0", "device", 8))), "no numa:4"));
  CHECK(holds(refusal(toy(), h2d(8_GiB)), "gpu:0 has 16 GiB of memory"));  // four slices of 8 GiB

  auto program = h2d(8);
  program.regions[0].kind = MemKind::vmm;
  CHECK(holds(refusal(toy(), program), "no vmm memory on numa:0"));
  program = h2d(8);
  std::get<Move>(program.actors[0].loop[0]).engine = Engine::graph;
  CHECK(holds(refusal(toy(), program), "does not say what a copy in a graph costs"));
  program = h2d(8);
  program.actors[0].loop[0] = Kernel{KernelId::read, {1, 1}, 0, {}};
  CHECK(holds(refusal(toy(), program), "the kernel 'read' states no traffic"));
  program.actors[0].loop[0] = Call{};
  CHECK(holds(refusal(toy(), program), "is made for no GPU, and is about no memory"));
  program.actors[0].loop[0] = Call{.api = "launch", .span = {}, .on = gpu(0)};
  CHECK(holds(refusal(toy(), program), "calls are made by CPU threads"));

  auto without_peer = toy();
  without_peer.erase("peer");
  const auto peers = copy_case("d2d", "gpu:0", "device", "gpu:1", "device", 8);
  CHECK(refusal(toy(), build_program(peers)).empty());
  CHECK(holds(refusal(without_peer, build_program(peers)), "no peer access between gpu:0 and gpu:1"));
  auto off = peers;
  off.params["peer"] = "off";
  CHECK(refusal(without_peer, build_program(off)).empty());
  CHECK_THROWS_AS(make_sim(without_peer, 1)->prepare(build_program(peers), "k#0"), Error);
}

TEST_CASE("an invalid machine file is refused, and the message names the key") {
  auto machine = toy();
  machine["link"][1].erase("gbps");
  CHECK(holds(parse_error(machine), "link[1]: it lacks 'gbps'"));
  machine = toy();
  machine["link"][0]["gbps"] = -1;
  CHECK(holds(parse_error(machine), "link[0].gbps"));
  machine = toy();
  machine["link"][0]["gbps"] = 0;
  CHECK(holds(parse_error(machine), "link[0].gbps"));
  machine = toy();
  machine["link"][0]["between"][0][1] = "gpu:9";
  CHECK(holds(parse_error(machine), "there is no gpu:9"));
  machine = toy();
  machine["fault"] = {{{"kind", "explode"}, {"match", "*"}}};
  CHECK(holds(parse_error(machine), "explode"));
  machine = toy();
  machine["machine"] = 5;
  CHECK(holds(parse_error(machine), "machine"));
  CHECK(holds(parse_error(nlohmann::json::array()), "machine"));
}

TEST_CASE("a run returns a stamp for every sample, batch and actor") {
  const auto sim = make_sim(toy(), 1);
  const auto program =
      build_program(copy_case("h2d", "numa:0", "pinned", "gpu:0", "device", 4096, {{"bidirectional", "true"}}));
  const auto session = sim->prepare(program, "k#0");
  const auto trace = sim->run(*session, {3, {{0, 0}, {4, 4}, {8, 0}}, true});
  CHECK(trace.stamps.size() == 3 * 3 * 2);
  CHECK(trace.timing == "virtual");
  CHECK(trace.at(1, 0, 1).exit_s - trace.at(1, 0, 1).enter_s == about(1e-6));
  CHECK(trace.at(2, 2, 1).exit_s - trace.at(2, 2, 1).enter_s == about(1e-6));  // the actor had no iterations
  CHECK(trace.at(2, 2, 0).exit_s > trace.at(2, 1, 0).exit_s);
  CHECK(trace.notes.at(0) == std::pair<std::string, std::string>{"route a0", "bus numa:0->gpu:0"});
  CHECK_THROWS_AS((void)sim->run(*session, {1, {{1}}, false}), Error);
}

TEST_CASE("noise depends on seed, key and sample, not on the order of calls") {
  const auto machine = bundled("h200x4");
  const auto sample_times = [&](Platform& sim, const std::string& key) {
    const auto session = sim.prepare(h2d(4096), key);
    auto all = durations(sim.run(*session, {4, {{0}, {8}, {16}}, false}));
    const auto more = durations(sim.run(*session, {2, {{8}}, false}));
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto one = make_sim(machine, 5), other = make_sim(machine, 5), other_seed = make_sim(machine, 6);
  const auto a = sample_times(*one, "a#0"), b = sample_times(*one, "a#1"), c = sample_times(*one, "c#0");
  CHECK(sample_times(*other, "c#0") == c);
  CHECK(sample_times(*other, "a#0") == a);
  CHECK(sample_times(*other, "a#1") == b);
  CHECK(a != b);
  CHECK(a != c);
  CHECK(sample_times(*other_seed, "a#0") != a);
}

TEST_CASE("each level of noise has the spread that the machine file states") {
  auto machine = toy();
  machine["copy"]["inline_us"] = 100;  // so that only the set-up counts
  machine["costs"]["event_us"] = 0;
  machine["noise"] = {{"round", {{"compute", 0.03}}}, {"sample", {{"compute", 0.002}}}};
  const auto sim = make_sim(machine, 1);
  const auto spread = [](const std::vector<double>& values) {
    double sum = 0, squares = 0;
    for (const double v : values) sum += std::log(v);
    for (const double v : values) squares += std::pow(std::log(v) - sum / static_cast<double>(values.size()), 2);
    return std::sqrt(squares / static_cast<double>(values.size() - 1));
  };
  std::vector<double> rounds;
  for (int round = 0; round < 400; ++round) {
    const auto session = sim->prepare(h2d(8), "p#" + std::to_string(round));
    const auto samples = durations(sim->run(*session, {20, {{1}}, false}));
    rounds.push_back(samples[0]);
    if (round == 0) CHECK(spread(samples) == about(0.002).epsilon(0.5));
  }
  CHECK(spread(rounds) == about(0.03).epsilon(0.15));

  machine["noise"] = {{"machine", {{"compute", 0.05}}}};
  std::vector<double> machines;
  for (u64 seed = 0; seed < 200; ++seed) machines.push_back(time_of(*make_sim(machine, seed), h2d(8), 1));
  CHECK(spread(machines) == about(0.05).epsilon(0.2));
  const auto sibling = make_sim(machine, 3);
  CHECK(time_of(*sibling, h2d(8), 1, "a#0") == time_of(*sibling, h2d(8), 1, "b#1"));
}

TEST_CASE("event stamps are multiples of the tick, and samples start at different phases of it") {
  auto machine = toy();
  machine["costs"]["event_tick_ns"] = 32;
  machine["costs"]["event_us"] = 1.25;
  const auto sim = make_sim(machine, 1);
  const auto session = sim->prepare(h2d(8), "k#0");
  double sum = 0;
  const auto trace = sim->run(*session, {400, {{0}}, false});
  for (const auto& stamp : trace.stamps) {
    const double ticks = stamp.enter_s / 32e-9;
    CHECK(ticks == about(std::round(ticks)).epsilon(1e-9));
    sum += stamp.exit_s - stamp.enter_s;
  }
  CHECK(sum / 400 == about(1.25e-6).epsilon(0.005));  // 39 and 40 ticks in the right ratio
}

TEST_CASE("verification accepts correct copies of any size") {
  const auto sim = make_sim(bundled("h200x4"), 1);
  for (const auto& c : {copy_case("h2d", "numa:0", "pageable", "gpu:0", "device", 1_GiB),
                        copy_case("d2d", "gpu:0", "device", "gpu:3", "device", 8),
                        copy_case("local", "gpu:1", "device", "gpu:1", "device", 4096)}) {
    const auto program = build_program(c);
    const auto session = sim->prepare(program, "k#0");
    const auto trace = sim->run(*session, {1, {{3}}, true});
    REQUIRE(trace.verdict);
    CHECK(trace.verdict->ok);
    CHECK(trace.verdict->checked_bytes == 3 * c.bytes);
    CHECK(trace.verdict->wrong_bytes == 0);
    CHECK_FALSE(sim->run(*session, {1, {{3}}, false}).verdict);
  }
}

TEST_CASE("a corrupt fault makes one byte wrong, for matching keys only") {
  auto machine = toy();
  machine["fault"] = {{{"kind", "corrupt"}, {"match", "h2d/*/4096?*#[1-9]*"}}};
  const auto sim = make_sim(machine, 1);
  const auto verdict = [&](const std::string& key) {
    const auto session = sim->prepare(h2d(4096), key);
    return *sim->run(*session, {2, {{2}, {4}}, true}).verdict;
  };
  CHECK(verdict("h2d/ce/a->b/4096?mode=batched#0").ok);
  CHECK(verdict("h2d/ce/a->b/8192?mode=batched#1").ok);
  const auto wrong = verdict("h2d/ce/a->b/4096?mode=batched#1");
  CHECK_FALSE(wrong.ok);
  CHECK(wrong.wrong_bytes == 1);
  CHECK(holds(wrong.first_wrong, "region r1 at byte "));
}

TEST_CASE("a die fault aborts the process and a hang fault never returns, each after the stated number of samples") {
  const auto child = [](const char* kind) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    std::signal(SIGABRT, SIG_DFL);  // otherwise doctest's handler would report the abort
    auto machine = toy();
    machine["fault"] = {{{"kind", kind}, {"match", "*"}, {"after_samples", 2}}};
    const auto sim = make_sim(machine, 1);
    const auto session = sim->prepare(h2d(8), "k#0");
    (void)sim->run(*session, {2, {{1}}, false});
    (void)sim->run(*session, {1, {{1}}, false});
    _exit(0);
  };
  int status = 0;
  waitpid(child("die"), &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);

  const pid_t hung = child("hang");
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  CHECK(waitpid(hung, &status, WNOHANG) == 0);
  kill(hung, SIGKILL);
  waitpid(hung, &status, 0);
}
