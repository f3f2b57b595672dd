// Messages between processes: on this host, and on the simulation against closed forms in us.
#include "host/messages.hpp"

#include <doctest.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "base/error.hpp"
#include "host/topology.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "program/latencies.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

constexpr Channel channels[] = {Channel::shm, Channel::local, Channel::tcp};

Case message_case(Channel channel, u64 bytes, const std::string& from = "numa:0", const std::string& to = "numa:0") {
  auto c = copy_case("message", from, "pageable", to, "pageable", bytes, {{"channel", to_string(channel)}});
  c.engine = Engine::cpu;
  return c;
}

Program messages(Channel channel, u64 bytes, const std::string& to = "numa:0") {
  return build_program(message_case(channel, bytes, "numa:0", to));
}

/// Ends every process that this thread has started.
void end_children() {
  std::ifstream list{"/proc/self/task/" + std::to_string(gettid()) + "/children"};
  for (pid_t child; list >> child;) kill(child, SIGKILL);
}

double round_trip_us(const nlohmann::json& machine, const Program& program) {
  const auto sim = make_sim(machine, 1);
  return slope(*sim, program) * 1e6;
}

}  // namespace

TEST_CASE("every message comes back with its bytes, by each channel and at each size") {
  for (const Channel channel : channels)
    for (const u64 bytes : {u64{8}, u64{4096}, 1_MiB}) {
      CAPTURE(to_string(channel));
      Messenger messenger{channel, bytes, 0, {}};
      for (int i = 0; i < 20; ++i) messenger.round_trip();
      CHECK(messenger.bytes() == bytes);
      CHECK(messenger.wrong_bytes() == 0);
    }
}

TEST_CASE("an answering process that ends is an error, and not a wait") {
  for (const Channel channel : channels) {
    CAPTURE(to_string(channel));
    Messenger messenger{channel, 64, 0, {}};
    end_children();
    CHECK_THROWS_WITH_AS(
        [&] {
          for (int i = 0; i < 1000; ++i) messenger.round_trip();
        }(),
        "the process that answers messages has ended", Error);
  }
}

TEST_CASE("arguments that do not ask for answers are left to the program") {
  std::string words[] = {"worker", "--other", "shm", "8", ""};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
  CHECK(answer_messages(1, arguments) == -1);
  CHECK(answer_messages(5, arguments) == -1);
}

TEST_CASE("a message task runs for a duration on this host and has the latency of each round trip") {
  const auto cuda = make_cuda();
  for (const Channel channel : channels) {
    const auto session = cuda->prepare(messages(channel, 64), "messages#0");
    const auto trace = cuda->run(*session, {1, {}, true, Duration{Seconds{0.03}, Seconds{0.01}}});
    const auto& series = trace.series[0];
    CHECK(series.latencies.count() == series.marks.back().iterations);
    CHECK(series.latencies.count() > 0);
    CHECK(*series.latencies.quantile(0.5) <= *series.latencies.quantile(0.99));
    CHECK(trace.verdict->ok);
    CHECK(trace.verdict->checked_bytes == 64);
  }
}

TEST_CASE("a task that needs a CPU which its node lacks is refused") {
  auto program = messages(Channel::shm, 8);
  const auto cpus = host_nodes()[0].cpus.size();
  std::get<Message>(program.actors[0].loop[0]).other_cpu = static_cast<u32>(cpus);
  const auto why = "a task needs CPU number " + std::to_string(cpus) + " of numa:0 for itself, and the node has " +
                   std::to_string(cpus) + " CPUs, numbered from 0";
  CHECK(make_cuda()->supports(program).why_not == why);
  auto machine = toy();
  machine["numa"][0]["cpus"] = cpus;
  CHECK(make_sim(machine, 1)->supports(program).why_not == why);
  std::get<Message>(program.actors[0].loop[0]).other_cpu = static_cast<u32>(cpus - 1);
  CHECK(make_sim(machine, 1)->supports(program));
}

TEST_CASE("a modelled round trip takes its latency in both directions and two copies of its bytes in each") {
  auto machine = toy();
  machine["costs"]["message_local_us"] = 5;
  CHECK(round_trip_us(machine, messages(Channel::shm, 1'000'000)) == about(2 * 0.3 + 2 * 1000 / 2.5));
  CHECK(round_trip_us(machine, messages(Channel::local, 1'000'000)) == about(2 * 5.0 + 2 * 1000 / 2.5));
  CHECK(round_trip_us(machine, messages(Channel::tcp, 1'000'000)) == about(2 * 7.0 + 2 * 1000 / 2.5));
  CHECK(round_trip_us(machine, messages(Channel::shm, 1'000'000, "numa:1")) ==
        about(2 * (0.3 + 0.25) + 2 * 1000 / 2.0));
  machine["numa"][0]["dram_gbps"] = 6;  // two copies read and write each byte of a message: four times in all
  CHECK(round_trip_us(machine, messages(Channel::shm, 1'000'000)) == about(2 * 0.3 + 2 * 1000 / 1.5));
}

TEST_CASE("a modelled thread that also drives a stream asks for its copies between messages") {
  auto c = copy_case("tasks", "numa:0", "pinned", "gpu:0", "device", 16_MiB,
                     {{"sets", "1"}, {"message", "8B"}, {"threads", "two"}});
  auto machine = toy();
  machine["numa"][0]["cpus"] = 4;
  const auto sim = make_sim(machine, 1);
  const auto median_us = [&](const char* threads) {
    c.params["threads"] = threads;
    const auto session = sim->prepare(build_program(c), "tasks#0");
    const auto trace = sim->run(*session, {1, {}, true, Duration{Seconds{0.05}, Seconds{0.01}}});
    CHECK(trace.verdict->ok);
    return *trace.series.back().latencies.quantile(0.5) * 1e6;
  };
  CHECK(median_us("two") == doctest::Approx(0.6).epsilon(0.02));
  CHECK(median_us("one") == doctest::Approx(0.6 + 0.25).epsilon(0.02));
}

TEST_CASE("the sets of tasks have their GPUs, and a pair of CPUs for each message task") {
  auto c = copy_case("tasks", "numa:0", "pinned", "gpu:0", "device", 16_MiB, {{"messages", "cores"}, {"sets", "all"}});
  c.others = {gpu(0), gpu(1)};
  c.cpus = {6, 6};
  const auto program = build_program(c);
  CHECK(program.flows.size() == 2 + 5);
  CHECK(program.actors[0].core == 0);
  CHECK(program.actors[1].core == 1);
  CHECK(message_of(program.actors[6])->cpu == 4);
  CHECK(message_of(program.actors[6])->other_cpu == 5);
  CHECK(program.actors[6].place == numa(1));
  CHECK(message_of(program.actors[6])->to == numa(1));
  c.params = {{"sets", "3"}};
  c.others.clear();
  CHECK(make_sim(toy(), 1)->supports(build_program(c)).why_not == "the machine toy has no gpu:2");
  c.params = {{"sets", "1"}, {"threads", "one"}, {"messages", "cores"}};
  CHECK_THROWS_WITH_AS((void)build_program(c),
                       "tasks: one thread has one transfer task and one message task: messages is each", Error);
}

TEST_CASE("messages are the whole loop of a CPU thread, and only messages share the thread of a stream") {
  const auto refused = [](const auto& change) {
    auto program = messages(Channel::shm, 8);
    change(program);
    try {
      validate(program);
    } catch (const Error& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  CHECK(refused([](Program&) {}).empty());
  CHECK(refused([](Program& p) { p.actors[0].loop.push_back(p.actors[0].loop[0]); }).ends_with("loop of a CPU thread"));
  CHECK(refused([](Program& p) { p.actors[0].thread_of = 0; }).ends_with("a0 is none"));
  CHECK(refused([](Program& p) { std::get<Message>(p.actors[0].loop[0]).bytes = 12; }).ends_with("and not 0 B"));
}

TEST_CASE("quantiles of durations are within 1.1 % of the exact ones") {
  Latencies latencies;
  CHECK(!latencies.quantile(0.5));
  for (int i = 1; i <= 1000; ++i) latencies.add(i * 1e-6);
  CHECK(latencies.count() == 1000);
  CHECK(*latencies.quantile(0.5) == about(500e-6).epsilon(0.011));
  CHECK(*latencies.quantile(0.99) == about(990e-6).epsilon(0.011));
  CHECK(*latencies.quantile(1) == about(1000e-6).epsilon(0.011));
  latencies.add(0);
  CHECK(*latencies.quantile(0) < 2e-9);
}
