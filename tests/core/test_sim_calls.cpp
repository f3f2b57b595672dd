// Calls, words that are set and waited for, and atomic operations on the small machine of sim_testing.hpp, against closed
// forms. All numbers are written here, in us.
#include <string>

#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

Program of(const std::string& benchmark, Engine engine, const std::string& src, const std::string& src_memory,
           const std::string& dst, const std::string& dst_memory, Params params = {}, u64 bytes = 0) {
  auto c = copy_case(benchmark, src, src_memory, dst, dst_memory, bytes, std::move(params));
  c.engine = engine;
  return build_program(c);
}

Program call(const std::string& benchmark, Params params = {}) {
  return of(benchmark, Engine::cpu, "numa:0", "pageable", "gpu:0", "device", std::move(params));
}

Program flags(const std::string& src, const std::string& dst, const std::string& memory, Params params = {}) {
  return of("ping_pong", src.starts_with("numa") ? Engine::cpu : Engine::sm, src, memory, dst, memory,
            std::move(params));
}

Program adds(const std::string& benchmark, const std::string& dst, Params params = {}, u64 bytes = 0) {
  return of(benchmark, Engine::sm, "gpu:0", "device", dst, dst.starts_with("numa") ? "pinned" : "device",
            std::move(params), bytes);
}

void is(double seconds, double us) { CHECK(seconds * 1e6 == doctest::Approx(us).epsilon(1e-6)); }

}  // namespace

TEST_CASE("a call costs what the machine file states plus its amount; the work that it queues costs nothing") {
  const auto sim = make_sim(toy(), 1);
  const auto each = [&](const Program& program) { return slope(*sim, program); };
  is(each(call("launch")), 3);
  is(each(call("launch", {{"arguments", "256"}})), 3 + 0.5);
  is(each(call("launch", {{"arguments", "4096"}})), 3 + 8);
  for (const char* what : {"stream", "device", "event"}) is(each(call("synchronize", {{"what", what}})), 0.5);
  is(each(call("event")), 0.75);
  is(each(call("event", {{"what", "query"}})), 0.25);
  is(each(call("stream")), 5 + 6);
  is(each(call("graph", {{"nodes", "100"}})), 4 + 100 * 0.125);
  is(each(call("graph", {{"what", "instantiate"}, {"nodes", "10"}})), 10 + 10 * 2);
  is(each(call("graph", {{"what", "upload"}, {"nodes", "1000"}})), 8 + 1000 * 0.5);
  is(each(of("copy_call", Engine::cpu, "numa:0", "pinned", "gpu:1", "device")), 2);
  is(each(of("copy_call", Engine::cpu, "gpu:0", "device", "numa:0", "pinned", {{"size", "8B"}})), 2);
}

TEST_CASE("concurrent launches hold the driver's lock in turns, for 1 of the 3 us of a launch") {
  const auto sim = make_sim(toy(), 1);
  for (const auto& [threads, us] : {std::pair{"1", 3.0}, {"2", 3.0}, {"4", 4.0}, {"8", 8.0}})
    is(slope(*sim, call("launch", {{"threads", threads}}), 64), us);
}

TEST_CASE("a wait ends when the last kernel has ended, and kernels of one stream run one after the other") {
  const auto sim = make_sim(toy(), 1);
  is(slope(*sim, call("launch_to_end")), 3 + 7);
  auto two = call("launch_to_end");
  two.actors[0].loop.insert(two.actors[0].loop.begin(), two.actors[0].loop.front());
  is(slope(*sim, two), 3 + 3 + 7);  // the first has long ended
  auto machine = toy();
  machine["kernel"]["launch_us"] = 6;
  const auto slow = make_sim(machine, 1);
  is(slope(*slow, two), 3 + 7 + 6);  // the second begins when the first ends
}

TEST_CASE("a copy that a call queues delivers its bytes and is counted on its link") {
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(of("copy_call", Engine::cpu, "numa:0", "pinned", "gpu:0", "device"), "key#0");
  const auto trace = sim->run(*session, {1, {{5}}, true});
  CHECK(trace.verdict->ok);
  CHECK(trace.verdict->checked_bytes == 5 * 4096);
  REQUIRE(trace.links.size() == 1);
  CHECK(trace.links[0].link == "bus numa:0->gpu:0");
  CHECK(trace.links[0].bytes == 5 * 4096);
}

TEST_CASE("ping-pong through host memory: the GPU's second poll finds the word") {
  // A look of the GPU takes 1.1 us: 0.5 there, 0.1 in the memory, 0.5 back. What it sets takes 0.5 us, and the CPU sees it half
  // a look of its own later at best: just when the GPU's first look for the answer has passed the memory.
  const auto sim = make_sim(toy(), 1);
  is(slope(*sim, flags("numa:0", "gpu:0", "pinned"), 100), 2 * 1.1);
  auto machine = toy();
  machine["numa"][0]["load_us"] = 0.02;
  machine["link"][0]["latency_us"] = 2;
  is(slope(*make_sim(machine, 1), flags("numa:0", "gpu:0", "pinned"), 100), 2 * 4.02);
}

TEST_CASE("a ping-pong between two processes through shared memory takes the same time as in one process") {
  const auto sim = make_sim(toy(), 1);
  const auto with_gpu = flags("numa:0", "gpu:0", "shm"), of_cpus = flags("numa:0", "numa:0", "shm");
  CHECK((with_gpu.actors[0].process == 1 && with_gpu.actors[1].process == 0 &&
         with_gpu.regions[0].process == 1));  // its owner is the CPU's
  CHECK((of_cpus.actors[0].process == 0 && of_cpus.actors[1].process == 1));
  is(slope(*sim, with_gpu, 100), 2 * 1.1);
  is(slope(*sim, of_cpus, 100), 2 * 0.1);  // a look each
  auto private_words = with_gpu;
  private_words.regions[0].kind = MemKind::pinned;
  CHECK(sim->supports(private_words).why_not ==
        "region r0 is of process 1, and process 0 uses it: pinned memory is not shared");
}

TEST_CASE(
    "ping-pong between GPUs: stores cross the link if the waiter holds the word, polls do if the setter holds it") {
  auto machine = toy();
  machine["link"][2]["latency_us"] = 0.2;
  // Who waits looks every 0.5 us, in the middle of which the store of 0.2 us is there.
  const auto near = make_sim(machine, 1);
  is(slope(*near, flags("gpu:0", "gpu:1", "device"), 100), 2 * 0.5);
  machine["link"][2]["latency_us"] = 0.3;  // just missed
  const auto far = make_sim(machine, 1);
  is(slope(*far, flags("gpu:0", "gpu:1", "device"), 100), 2 * 1.0);
  // A look takes 0.2 there, 0.5 in the memory and 0.2 back; what is set is there at once.
  is(slope(*near, flags("gpu:0", "gpu:1", "device", {{"word", "setter"}}), 100), 2 * 0.9);
  // The same between GPUs of two processes, by the memory of one or the other.
  for (const char* kind : {"ipc", "posix_fd"}) {
    const auto of_two = flags("gpu:0", "gpu:1", kind);
    CHECK((of_two.actors[0].process == 0 && of_two.actors[1].process == 1 && of_two.regions[0].process == 0 &&
           of_two.regions[1].process == 1));
    is(slope(*near, of_two, 100), 2 * 0.5);
    is(slope(*near, flags("gpu:1", "gpu:0", kind, {{"word", "setter"}}), 100), 2 * 0.9);
  }
  // Through the host from both: numa:0 is one link from gpu:0 and two (or a bridge and one) from gpu:1.
  CHECK(slope(*near, flags("gpu:0", "gpu:1", "pinned"), 100) > 2e-6);
}

TEST_CASE("the words of a round trip are counted on the links that they cross") {
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(flags("gpu:0", "gpu:1", "device"), "key#0");
  const auto trace = sim->run(*session, {1, {{10, 10}}, true});
  REQUIRE(trace.links.size() == 2);
  for (const auto& link : trace.links) CHECK(link.bytes == 80);
}

TEST_CASE("a wait for a word that does not come times out") {
  const auto sim = make_sim(toy(), 1);
  auto program = flags("numa:0", "gpu:0", "pinned");
  std::get<Wait>(program.actors[1].loop[0]).value = 100;
  auto session = sim->prepare(program, "key#0");
  CHECK_THROWS_WITH_AS(sim->run(*session, {1, {{3, 3}}, false}),
                       doctest::Contains("waited 2.000000 s for a word in numa:0.pinned to become"), Error);
  program = flags("gpu:0", "gpu:1", "device");
  for (auto& actor : program.actors)
    for (auto& step : actor.loop)
      if (auto* wait = std::get_if<Wait>(&step)) wait->timeout = Seconds{0.3e-6};
  session = sim->prepare(program, "key#0");
  CHECK_THROWS_WITH_AS(sim->run(*session, {1, {{3, 3}}, false}), doctest::Contains("it came too late"), Error);
}

TEST_CASE("actors that wait for each other must do the same number of iterations") {
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(flags("gpu:0", "gpu:1", "device"), "key#0");
  CHECK_THROWS_WITH_AS(sim->run(*session, {1, {{3, 4}}, false}), doctest::Contains("wait for each other"), Error);
}

TEST_CASE("memory or link limit the rate of atomic operations; dependent ones each take a round trip") {
  const auto sim = make_sim(toy(), 1);
  constexpr u64 megabyte = 1'000'000;  // 125 000 additions
  is(slope(*sim, adds("atomic", "gpu:0", {}, megabyte)), 2 + 125 / 4.0);
  is(slope(*sim, adds("atomic", "gpu:0", {{"words", "one"}, {"scope", "system"}}, megabyte)), 2 + 125 / 0.5);
  is(slope(*sim, adds("atomic", "gpu:1", {}, megabyte)), 2 + 0.25 + 125 / (40.0 / 32));  // the bridge, 32 B each
  is(slope(*sim, adds("atomic", "gpu:1", {{"words", "one"}}, megabyte)), 2 + 0.25 + 125 / 0.5);
  is(slope(*sim, adds("atomic", "numa:0", {}, megabyte)), 2 + 0.5 + 125 / 0.25);
  is(slope(*sim, adds("atomic", "numa:0", {{"words", "one"}}, megabyte)),
     2 + 0.5 + 125000 * (0.2 + 2 * 0.5));  // one waits for another
  is(slope(*sim, adds("atomic_latency", "gpu:0"), 100), 0.3);
  is(slope(*sim, adds("atomic_latency", "gpu:1"), 100), 0.3 + 2 * 0.25);
  is(slope(*sim, adds("atomic_latency", "numa:0"), 100), 0.2 + 2 * 0.5);
  auto slower = toy();
  slower["atomic"]["same_peer_gops"] = 0.2;
  is(slope(*make_sim(slower, 1), adds("atomic", "gpu:1", {{"words", "one"}}, megabyte)), 2 + 0.25 + 125 / 0.2);
  is(slope(*make_sim(slower, 1), adds("atomic", "gpu:0", {{"words", "one"}}, megabyte)), 2 + 125 / 0.5);
}

TEST_CASE("calls, words and atomic operations that the model lacks are not supported, with the reason") {
  const auto why = [](const nlohmann::json& machine, const Program& program) {
    return make_sim(machine, 1)->supports(program).why_not;
  };
  auto without = toy();
  for (const char* table : {"calls", "atomic"}) without.erase(table);
  CHECK(why(without, call("launch")).find("[calls]") != std::string::npos);
  CHECK(why(without, of("copy_call", Engine::cpu, "numa:0", "pinned", "gpu:0", "device")).empty());
  CHECK(why(without, adds("atomic_latency", "gpu:0")).find("[atomic]") != std::string::npos);
  without["numa"][0].erase("load_us");
  CHECK(why(without, flags("numa:0", "gpu:0", "pinned")).find("load_us") != std::string::npos);
  CHECK(why(without, flags("gpu:0", "gpu:1", "device")).empty());
  without.erase("peer");
  CHECK(why(without, flags("gpu:0", "gpu:1", "device")).find("peer access") != std::string::npos);
  CHECK(why(toy(), flags("numa:0", "gpu:0", "device")).find("no loads from and stores to") != std::string::npos);
  CHECK(why(toy(), flags("numa:0", "gpu:0", "managed")).find("managed") != std::string::npos);
  auto unknown = call("launch");
  std::get<Call>(unknown.actors[0].loop[0]).api = "sing";
  CHECK(why(toy(), unknown).find("'sing'") != std::string::npos);
}
