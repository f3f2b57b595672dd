// Several processes on the small machine of sim_testing.hpp, against closed forms, in us. A copy of 1 MB from pinned
// memory takes 0.5 + 2 + 100; two events take 1.
#include <algorithm>

#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

constexpr double copy_us = 102.5, events_us = 1;

Program waited_h2d(const std::string& memory, const std::string& gpu = "gpu:0", u64 bytes = megabyte) {
  return build_program(copy_case("h2d", "numa:0", memory, gpu, "device", bytes, {{"after", "wait"}}));
}

/// Combines the programs; the n-th program runs in the n-th process.
Program processes(std::vector<Program> programs) {
  for (u32 process = 0; process < programs.size(); ++process) {
    for (auto& region : programs[process].regions) region.process = process;
    for (auto& actor : programs[process].actors) actor.process = process;
  }
  return together(programs);
}

nlohmann::json slices(double change_us, double slice_us) {
  auto machine = toy();
  machine["costs"]["context_switch_us"] = change_us;
  machine["costs"]["time_slice_us"] = slice_us;
  return machine;
}

/// The end of each actor, in us after the common start.
std::vector<double> ends(const nlohmann::json& machine, const Program& program, const std::vector<u32>& counts) {
  const auto sim = make_sim(machine, 1);
  const auto session = sim->prepare(program, "key#0");
  const auto trace = sim->run(*session, {1, {counts}, true});
  CHECK(trace.verdict->ok);
  std::vector<double> all;
  for (const auto& stamp : trace.stamps) all.push_back((stamp.exit_s - trace.stamps[0].enter_s) * 1e6);
  return all;
}

void check_all_us(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == about(expected[i]).epsilon(1e-6));
}

std::string why_not(const nlohmann::json& machine, const Program& program) {
  return make_sim(machine, 1)->supports(program).why_not;
}

}  // namespace

TEST_CASE(
    "two processes that copy to one GPU alternate by time slices: half of the time each, less the context switches") {
  const auto two = processes({waited_h2d("pinned"), waited_h2d("pinned")});
  // Slice of 150 us: a copy that has begun is finished, so two copies per slice: A A, B B, A A, B B.
  check_all_us(ends(slices(10, 150), two, {4, 4}),
               {6 * copy_us + 2 * 10 + events_us, 8 * copy_us + 3 * 10 + events_us});
  // Slice shorter than a copy: the processes alternate copy by copy.
  check_all_us(ends(slices(10, 0), two, {4, 4}), {7 * copy_us + 6 * 10 + events_us, 8 * copy_us + 7 * 10 + events_us});
  check_all_us(ends(slices(10, 50), two, {4, 4}), {7 * copy_us + 6 * 10 + events_us, 8 * copy_us + 7 * 10 + events_us});
  // Slice longer than all copies: one process after the other.
  check_all_us(ends(slices(10, 10'000), two, {4, 4}), {4 * copy_us + events_us, 8 * copy_us + 10 + events_us});
  const auto sim = make_sim(slices(10, 150), 1);
  CHECK(slope(*sim, two) * 1e6 == about(2 * copy_us + 10));
}

TEST_CASE("three processes use the GPU in round-robin order") {
  const auto three = processes({waited_h2d("pinned"), waited_h2d("pinned"), waited_h2d("pinned")});
  check_all_us(ends(slices(10, 0), three, {2, 2, 2}),
               {4 * copy_us + 3 * 10 + events_us, 5 * copy_us + 4 * 10 + events_us, 6 * copy_us + 5 * 10 + events_us});
}

TEST_CASE("a process without work yields the GPU immediately, and a lone process pays for no context switch") {
  const auto two = processes({waited_h2d("pinned"), waited_h2d("pinned")});
  check_all_us(ends(slices(10, 10'000), two, {1, 3}), {copy_us + events_us, 4 * copy_us + 10 + events_us});
  check_all_us(ends(slices(10, 0), two, {4, 1}), {5 * copy_us + 2 * 10 + events_us, 2 * copy_us + 10 + events_us});
  check_all_us(ends(slices(10, 0), two, {4, 0}), {4 * copy_us + events_us, events_us});
  // Two streams of one process share the engine for any length of slice.
  check_all_us(ends(slices(10, 0), together({waited_h2d("pinned"), waited_h2d("pinned")}), {2, 2}),
               {3 * copy_us + events_us, 4 * copy_us + events_us});
}

TEST_CASE("streams of one process copy in both directions concurrently; two processes take turns") {
  const auto out =
      build_program(copy_case("d2h", "gpu:0", "device", "numa:0", "pinned", megabyte, {{"after", "wait"}}));
  const double from_gpu_us = 103.5;
  check_all_us(ends(slices(10, 0), together({waited_h2d("pinned"), out}), {2, 2}),
               {2 * copy_us + events_us, 2 * from_gpu_us + events_us});
  check_all_us(ends(slices(10, 0), processes({waited_h2d("pinned"), out}), {2, 2}),
               {2 * copy_us + from_gpu_us + 2 * 10 + events_us, 2 * copy_us + 2 * from_gpu_us + 3 * 10 + events_us});
}

TEST_CASE("kernels of one process run concurrently; kernels of two processes take turns") {
  const auto read = build_program([] {
    auto c = copy_case("h2d", "numa:0", "pinned", "gpu:0", "device", megabyte);
    c.engine = Engine::sm;
    return c;
  }());
  const double one_process = time_of(*make_sim(toy(), 1), read, 1) * 1e6 - events_us;
  check_all_us(ends(slices(10, 0), processes({read, read}), {1, 1}),
               {one_process + events_us, 2 * one_process + 10 + events_us});
  CHECK(ends(slices(10, 0), together({read, read}), {1, 1})[1] < 2 * one_process);
}

TEST_CASE("processes on two GPUs share only the link before them") {
  auto machine = toy();
  machine["share"] = {{{"name", "up"}, {"links", {"bus *->gpu:*"}}, {"gbps", 10}}};
  const auto second =
      build_program(copy_case("h2d", "numa:1", "pinned", "gpu:1", "device", megabyte, {{"after", "wait"}}));
  check_all_us(ends(machine, processes({waited_h2d("pinned"), second}), {2, 2}),
               {2 * 202.5 + events_us, 2 * 202.5 + events_us});
  check_all_us(ends(toy(), processes({waited_h2d("pinned"), second}), {2, 2}),
               {2 * copy_us + events_us, 2 * copy_us + events_us});
}

TEST_CASE("pageable copies of two processes overlap; those of one process take turns at the copying thread") {
  // Per chunk the thread needs 2 us for a call and 25.6 us at 4 GB/s. Only the 25.6 us hold the driver's lock.
  const auto pageable = [](const std::string& gpu) { return waited_h2d("pageable", gpu, ten_chunks); };
  const auto chunks = [](const nlohmann::json& machine, const Program& program) {
    return slope(*make_sim(machine, 1), program) * 1e6 / 10;
  };
  const double one_process = chunks(toy(), pageable("gpu:0"));
  CHECK(one_process == about(27.6).epsilon(0.05));
  for (const std::string other : {"gpu:0", "gpu:1"}) {
    const auto machine = slices(0, 0);
    CHECK(chunks(machine, together({pageable("gpu:0"), pageable(other)})) == about(2 * 25.6).epsilon(0.05));
    CHECK(chunks(machine, processes({pageable("gpu:0"), pageable(other)})) == about(27.6).epsilon(0.05));
  }
  // Each chunk uses the GPU for 0.5 + 2 + 10.24 us plus a context switch, and this becomes the bottleneck.
  CHECK(chunks(slices(10, 0), processes({pageable("gpu:0"), pageable("gpu:0")})) ==
        about(2 * (12.74 + 10)).epsilon(0.05));
}

TEST_CASE("staged copies of two processes in opposite directions take turns on both GPUs, and all bytes arrive") {
  const auto staged = [](const std::string& from, const std::string& to) {
    return build_program(
        copy_case("d2d", from, "device", to, "device", ten_chunks, {{"peer", "off"}, {"after", "wait"}}));
  };
  const auto forward = staged("gpu:0", "gpu:1"), backward = staged("gpu:1", "gpu:0");
  const double one_process = ends(toy(), forward, {3})[0] - events_us;
  for (const double slice : {0.0, 40.0, 10'000.0}) {
    const auto end_times = ends(slices(1, slice), processes({forward, backward}), {3, 3});
    const double last = std::max(end_times[0], end_times[1]) - events_us;
    CHECK(last > 1.2 * one_process);
    CHECK(last < 3 * one_process);
  }
}

TEST_CASE(
    "SP-10: n processes that copy 64 MiB to one GPU of sl390 get 1/n of the rate each, less the context switches") {
  const auto sim = make_sim(exact(bundled("sl390")), 1);
  const auto one = waited_h2d("pinned", "gpu:0", 64_MiB);
  const double one_process = slope(*sim, one);
  for (const u32 tasks : {2u, 3u, 4u}) {
    const double each = slope(*sim, processes(std::vector<Program>(tasks, one)));
    CHECK(each > tasks * one_process);
    CHECK(each == about(tasks * (one_process + 25e-6)).epsilon(1e-3));
  }
}

TEST_CASE("combinations of processes that the model lacks are refused with the reason") {
  auto two = processes({waited_h2d("pinned"), waited_h2d("pinned")});
  CHECK(why_not(toy(), two) ==
        "several processes use gpu:0, and the model toy does not say how they share it: context_switch_us and "
        "time_slice_us of [costs]");
  CHECK(why_not(slices(10, 100), two).empty());
  CHECK(why_not(toy(), processes({waited_h2d("pinned", "gpu:0"), waited_h2d("pinned", "gpu:1")})).empty());
  two.regions[0].process = 1;
  CHECK(why_not(slices(10, 100), two) ==
        "region r0 is of process 1, and process 0 uses it: pinned memory is not shared");
  two.regions[0].kind = MemKind::shm;
  CHECK(why_not(slices(10, 100), two).empty());
  auto half = toy();
  half["costs"]["time_slice_us"] = 100;
  CHECK_THROWS_AS((void)make_sim(half, 1), Error);
  // A copy between GPUs that is staged through the host uses both GPUs.
  const auto staged = build_program(
      copy_case("d2d", "gpu:0", "device", "gpu:1", "device", megabyte, {{"peer", "off"}, {"after", "wait"}}));
  const auto local =
      build_program(copy_case("local", "gpu:1", "device", "gpu:1", "device", megabyte, {{"after", "wait"}}));
  CHECK(why_not(toy(), processes({staged, local})).find("several processes use gpu:1") != std::string::npos);
}

TEST_CASE("kernels of two processes that wait for each other need MPS on one GPU of the model, and nothing on two") {
  const auto machine = bundled("h200x2");
  for (const char* dst : {"gpu:0", "gpu:1"})
    for (const char* way : {"mps", "processes"}) {
      auto c = copy_case("put_ping_pong", "gpu:0", "ipc", dst, "ipc", 64);
      c.engine = Engine::sm;
      if (c.src == c.dst) c.params["way"] = way;
      const bool in_turns = c.src == c.dst && std::string{way} == "processes";
      CHECK((why_not(machine, build_program(c)).find("take turns on a GPU by whole kernels") != std::string::npos) ==
            in_turns);
    }
}

TEST_CASE("the drivers' rings of all processes take part of the last-level cache") {
  auto machine = toy();  // a ring has 300 KiB
  machine["numa"][0]["llc_mib"] = 1;
  machine["numa"][0]["llc_gbps"] = 20;
  const auto hot = [](const char* numa) {
    auto c = copy_case("h2h", numa, "pageable", numa, "pinned", 256_KiB, {{"cache", "hot"}});
    c.footprint_bytes = c.bytes;
    return build_program(c);
  };
  const auto sim = make_sim(machine, 1);
  const double bytes = 256_KiB;
  CHECK(slope(*sim, hot("numa:0")) * 1e6 == about(0.1 + bytes / 20e3));
  CHECK(slope(*sim, processes({hot("numa:0"), hot("numa:1")})) * 1e6 == about(0.1 + bytes / 5e3));
}

TEST_CASE("processes under MPS run side by side, like threads of one process, and need no time slices") {
  const auto pair = [](bool mps) {
    auto program = processes({waited_h2d("pinned"), waited_h2d("pinned")});
    program.mps = mps;
    return program;
  };
  CHECK(!why_not(toy(), pair(false)).empty());
  CHECK(why_not(toy(), pair(true)).empty());
  auto threads = pair(true);
  for (auto& region : threads.regions) region.process = 0;
  for (auto& actor : threads.actors) actor.process = 0;
  check_all_us(ends(toy(), pair(true), {4, 4}), ends(toy(), threads, {4, 4}));
  CHECK(together({pair(true), waited_h2d("pinned")}).mps);
}

TEST_CASE("a stream of a green context has its part of the SMs, and one that waits for each operation pays for it") {
  Case c = copy_case("local", "gpu:0", "device", "gpu:0", "device", 16_MiB);
  c.engine = Engine::sm;
  auto program = build_program(c);
  const auto each_us = [&] { return slope(*make_sim(toy(), 1), program) * 1e6; };
  const double all = each_us();
  program.actors[0].sms = SmShare{0, 4};
  CHECK(each_us() > 2 * all);
  auto copies = waited_h2d("pinned");
  copies.actors[0].singly = true;
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(copies, "singly#0");
  const auto trace = sim->run(*session, {1, {}, true, Duration{Seconds{0.02}, Seconds{0.01}}});
  // The call, 2, and the end that the thread sees, 4.
  CHECK(*trace.series[0].latencies.quantile(0.5) * 1e6 == doctest::Approx(copy_us + 2 + 4).epsilon(0.012));
  CHECK(trace.series[0].latencies.count() == trace.series[0].marks.back().iterations);
}
