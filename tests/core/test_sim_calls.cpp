// Calls, words that actors set and wait for, and atomic operations on the small machine of sim_testing.hpp, against
// closed forms. All expected times are stated here, in us.
#include <string>

#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

Program make_program(const std::string& benchmark, Engine engine, const std::string& src, const std::string& src_memory,
                     const std::string& dst, const std::string& dst_memory, Params params = {}, u64 bytes = 0) {
  auto c = copy_case(benchmark, src, src_memory, dst, dst_memory, bytes, std::move(params));
  c.engine = engine;
  return build_program(c);
}

Program call(const std::string& benchmark, Params params = {}) {
  return make_program(benchmark, Engine::cpu, "numa:0", "pageable", "gpu:0", "device", std::move(params));
}

Program ping_pong(const std::string& src, const std::string& dst, const std::string& memory, Params params = {}) {
  return make_program("ping_pong", src.starts_with("numa") ? Engine::cpu : Engine::sm, src, memory, dst, memory,
                      std::move(params));
}

Program atomics(const std::string& benchmark, const std::string& dst, Params params = {}, u64 bytes = 0) {
  return make_program(benchmark, Engine::sm, "gpu:0", "device", dst, dst.starts_with("numa") ? "pinned" : "device",
                      std::move(params), bytes);
}

}  // namespace

TEST_CASE("a call costs what the machine file states plus its amount; the work that it queues costs nothing") {
  const auto sim = make_sim(toy(), 1);
  const auto each = [&](const Program& program) { return slope(*sim, program); };
  check_us(each(call("launch")), 3);
  check_us(each(call("launch", {{"arguments", "256"}})), 3 + 0.5);
  check_us(each(call("launch", {{"arguments", "4096"}})), 3 + 8);
  for (const char* what : {"stream", "device", "event"}) check_us(each(call("synchronize", {{"what", what}})), 0.5);
  check_us(each(call("event")), 0.75);
  check_us(each(call("event", {{"what", "query"}})), 0.25);
  check_us(each(call("stream")), 5 + 6);
  check_us(each(call("graph", {{"nodes", "100"}})), 4 + 100 * 0.125);
  check_us(each(call("graph", {{"what", "instantiate"}, {"nodes", "10"}})), 10 + 10 * 2);
  check_us(each(call("graph", {{"what", "upload"}, {"nodes", "1000"}})), 8 + 1000 * 0.5);
  check_us(each(make_program("copy_call", Engine::cpu, "numa:0", "pinned", "gpu:1", "device")), 2);
  check_us(each(make_program("copy_call", Engine::cpu, "gpu:0", "device", "numa:0", "pinned", {{"size", "8B"}})), 2);
}

TEST_CASE("concurrent launches hold the driver's lock in turns, for 1 of the 3 us of a launch") {
  const auto sim = make_sim(toy(), 1);
  for (const auto& [threads, us] : {std::pair{"1", 3.0}, {"2", 3.0}, {"4", 4.0}, {"8", 8.0}})
    check_us(slope(*sim, call("launch", {{"threads", threads}}), 64), us);
}

TEST_CASE("a wait ends when the last kernel has ended, and kernels of one stream run one after the other") {
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, call("launch_to_end")), 3 + 7);
  for (const char* wait : {"synchronize_device", "synchronize_event"}) {
    auto waits = call("launch_to_end");
    std::get<Call>(waits.actors[0].loop[1]).api = wait;
    check_us(slope(*sim, waits), 3 + 7);
  }
  auto two = call("launch_to_end");
  two.actors[0].loop.insert(two.actors[0].loop.begin(), two.actors[0].loop.front());
  check_us(slope(*sim, two), 3 + 3 + 7);  // the first kernel ended long before
  auto machine = toy();
  machine["kernel"]["launch_us"] = 6;
  const auto slow = make_sim(machine, 1);
  check_us(slope(*slow, two), 3 + 7 + 6);  // the second kernel begins when the first ends
}

TEST_CASE("a copy that a call queues delivers its bytes and is counted on its link") {
  const auto sim = make_sim(toy(), 1);
  const auto session =
      sim->prepare(make_program("copy_call", Engine::cpu, "numa:0", "pinned", "gpu:0", "device"), "key#0");
  const auto trace = sim->run(*session, {1, {{5}}, true});
  CHECK(trace.verdict->ok);
  CHECK(trace.verdict->checked_bytes == 5 * 4096);
  REQUIRE(trace.links.size() == 1);
  CHECK(trace.links[0].link == "bus numa:0->gpu:0");
  CHECK(trace.links[0].bytes == 5 * 4096);
}

TEST_CASE("ping-pong through host memory: the GPU's second poll finds the word") {
  // A poll of the GPU takes 1.1 us: 0.5 to the memory, 0.1 in it, 0.5 back. A store of the GPU takes 0.5 us, and the
  // CPU sees it half a poll later at best. At that time the GPU's first poll for the answer has just passed the memory.
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, ping_pong("numa:0", "gpu:0", "pinned"), 100), 2 * 1.1);
  auto machine = toy();
  machine["numa"][0]["load_us"] = 0.02;
  machine["link"][0]["latency_us"] = 2;
  check_us(slope(*make_sim(machine, 1), ping_pong("numa:0", "gpu:0", "pinned"), 100), 2 * 4.02);
}

TEST_CASE("a ping-pong between two processes through shared memory takes the same time as in one process") {
  const auto sim = make_sim(toy(), 1);
  const auto with_gpu = ping_pong("numa:0", "gpu:0", "shm"), between_cpus = ping_pong("numa:0", "numa:0", "shm");
  CHECK((with_gpu.actors[0].process == 1 && with_gpu.actors[1].process == 0 &&
         with_gpu.regions[0].process == 1));  // the CPU's process owns it
  CHECK((between_cpus.actors[0].process == 0 && between_cpus.actors[1].process == 1));
  check_us(slope(*sim, with_gpu, 100), 2 * 1.1);
  check_us(slope(*sim, between_cpus, 100), 2 * 0.1);  // one poll each
  auto private_words = with_gpu;
  private_words.regions[0].kind = MemKind::pinned;
  CHECK(sim->supports(private_words).why_not ==
        "region r0 is of process 1, and process 0 uses it: pinned memory is not shared");
}

TEST_CASE(
    "ping-pong between GPUs: stores cross the link if the waiter holds the word, polls do if the setter holds it") {
  auto machine = toy();
  machine["link"][2]["latency_us"] = 0.2;
  // The waiter polls every 0.5 us; the store takes 0.2 us and arrives during the first poll.
  const auto short_link = make_sim(machine, 1);
  check_us(slope(*short_link, ping_pong("gpu:0", "gpu:1", "device"), 100), 2 * 0.5);
  machine["link"][2]["latency_us"] = 0.3;  // the first poll just misses the store
  const auto long_link = make_sim(machine, 1);
  check_us(slope(*long_link, ping_pong("gpu:0", "gpu:1", "device"), 100), 2 * 1.0);
  // A poll takes 0.2 us to the memory, 0.5 in it and 0.2 back; a store to local memory is there immediately.
  check_us(slope(*short_link, ping_pong("gpu:0", "gpu:1", "device", {{"word", "setter"}}), 100), 2 * 0.9);
  // GPUs of two processes take the same time, with the memory of either process.
  for (const char* kind : {"ipc", "posix_fd"}) {
    const auto two_processes = ping_pong("gpu:0", "gpu:1", kind);
    CHECK((two_processes.actors[0].process == 0 && two_processes.actors[1].process == 1 &&
           two_processes.regions[0].process == 0 && two_processes.regions[1].process == 1));
    check_us(slope(*short_link, two_processes, 100), 2 * 0.5);
    check_us(slope(*short_link, ping_pong("gpu:1", "gpu:0", kind, {{"word", "setter"}}), 100), 2 * 0.9);
  }
  // Both GPUs reach numa:0: gpu:0 over one link, gpu:1 over two (or over the bridge and one).
  CHECK(slope(*short_link, ping_pong("gpu:0", "gpu:1", "pinned"), 100) > 2e-6);
}

TEST_CASE("the words of a round trip are counted on the links that they cross") {
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(ping_pong("gpu:0", "gpu:1", "device"), "key#0");
  const auto trace = sim->run(*session, {1, {{10, 10}}, true});
  REQUIRE(trace.links.size() == 2);
  for (const auto& link : trace.links) CHECK(link.bytes == 80);
}

TEST_CASE("a wait for a word that does not come times out") {
  const auto sim = make_sim(toy(), 1);
  auto program = ping_pong("numa:0", "gpu:0", "pinned");
  std::get<Wait>(program.actors[1].loop[0]).value = 100;
  auto session = sim->prepare(program, "key#0");
  CHECK_THROWS_WITH_AS(sim->run(*session, {1, {{3, 3}}, false}),
                       doctest::Contains("waited 2.000000 s for a word in numa:0.pinned to become"), Error);
  program = ping_pong("gpu:0", "gpu:1", "device");
  for (auto& actor : program.actors)
    for (auto& step : actor.loop)
      if (auto* wait = std::get_if<Wait>(&step)) wait->timeout = Seconds{0.3e-6};
  session = sim->prepare(program, "key#0");
  CHECK_THROWS_WITH_AS(sim->run(*session, {1, {{3, 3}}, false}), doctest::Contains("the value came too late"), Error);
}

TEST_CASE("actors that wait for each other must do the same number of iterations") {
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(ping_pong("gpu:0", "gpu:1", "device"), "key#0");
  CHECK_THROWS_WITH_AS(sim->run(*session, {1, {{3, 4}}, false}), doctest::Contains("wait for each other"), Error);
}

TEST_CASE("memory or link limit the rate of atomic operations; dependent ones each take a round trip") {
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, atomics("atomic", "gpu:0", {}, megabyte)), 2 + 125 / 4.0);  // 125 000 additions
  check_us(slope(*sim, atomics("atomic", "gpu:0", {{"words", "one"}, {"scope", "system"}}, megabyte)), 2 + 125 / 0.5);
  check_us(slope(*sim, atomics("atomic", "gpu:1", {}, megabyte)),
           2 + 0.25 + 125 / (40.0 / 32));  // the bridge, 32 B each
  check_us(slope(*sim, atomics("atomic", "gpu:1", {{"words", "one"}}, megabyte)), 2 + 0.25 + 125 / 0.5);
  check_us(slope(*sim, atomics("atomic", "numa:0", {}, megabyte)), 2 + 0.5 + 125 / 0.25);
  check_us(slope(*sim, atomics("atomic", "numa:0", {{"words", "one"}}, megabyte)),
           2 + 0.5 + 125000 * (0.2 + 2 * 0.5));  // dependent additions
  check_us(slope(*sim, atomics("atomic_latency", "gpu:0"), 100), 0.3);
  check_us(slope(*sim, atomics("atomic_latency", "gpu:1"), 100), 0.3 + 2 * 0.25);
  check_us(slope(*sim, atomics("atomic_latency", "numa:0"), 100), 0.2 + 2 * 0.5);
  auto slower = toy();
  slower["atomic"]["same_peer_gops"] = 0.2;
  check_us(slope(*make_sim(slower, 1), atomics("atomic", "gpu:1", {{"words", "one"}}, megabyte)), 2 + 0.25 + 125 / 0.2);
  check_us(slope(*make_sim(slower, 1), atomics("atomic", "gpu:0", {{"words", "one"}}, megabyte)), 2 + 125 / 0.5);
}

TEST_CASE("calls, words and atomic operations that the model lacks are not supported, with the reason") {
  const auto why = [](const nlohmann::json& machine, const Program& program) {
    return make_sim(machine, 1)->supports(program).why_not;
  };
  auto without = toy();
  for (const char* table : {"calls", "atomic"}) without.erase(table);
  CHECK(why(without, call("launch")).find("[calls]") != std::string::npos);
  CHECK(why(without, make_program("copy_call", Engine::cpu, "numa:0", "pinned", "gpu:0", "device")).empty());
  CHECK(why(without, atomics("atomic_latency", "gpu:0")).find("[atomic]") != std::string::npos);
  without["numa"][0].erase("load_us");
  CHECK(why(without, ping_pong("numa:0", "gpu:0", "pinned")).find("load_us") != std::string::npos);
  CHECK(why(without, ping_pong("gpu:0", "gpu:1", "device")).empty());
  without.erase("peer");
  CHECK(why(without, ping_pong("gpu:0", "gpu:1", "device")).find("peer access") != std::string::npos);
  CHECK(why(toy(), ping_pong("numa:0", "gpu:0", "device")).find("no loads from and stores to") != std::string::npos);
  CHECK(why(toy(), ping_pong("numa:0", "gpu:0", "managed")).find("managed") != std::string::npos);
  auto unknown = call("launch");
  std::get<Call>(unknown.actors[0].loop[0]).api = "sing";
  CHECK(why(toy(), unknown).find("'sing'") != std::string::npos);
}
