// Programs of several processes: the part of each, and a ring of three that runs on this machine.
#include <doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "benchmarks/case.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "program/processes.hpp"

using namespace linkscope;

namespace {

/// A word goes around: each process waits for its own word and then sets that of the next one; process 0 begins.
Program ring(u32 processes) {
  Program program;
  program.cache = CacheState::hot;
  const Place node{PlaceKind::numa, 0, one_host, {}};
  const auto word = [](u32 region) { return Span{region, 0, sizeof(u64), 0, 1}; };
  for (u32 process = 0; process < processes; ++process) {
    Region region{node, MemKind::shm, 4096, Content::zero};
    region.process = process;
    program.regions.push_back(region);
    Actor actor;
    actor.place = node;
    actor.kind = ActorKind::cpu_thread;
    actor.clock = Clock::host;
    actor.process = process;
    actor.loop = {Wait{word(process), 1, 1}, Set{word((process + 1) % processes), 1, 1}};
    if (process == 0) std::swap(actor.loop[0], actor.loop[1]);
    program.actors.push_back(std::move(actor));
    program.flows.push_back({process, node, node, MemKind::shm, MemKind::shm, 0});
  }
  return program;
}

Case copy(const char* name, const char* src, const char* dst, MemKind from, MemKind to) {
  Case c;
  c.benchmark = name;
  c.src = parse_place(src);
  c.dst = parse_place(dst);
  c.src_memory = from;
  c.dst_memory = to;
  c.bytes = 4096;
  return c;
}

/// Runs a function in as many processes; returns whether it was true in all of them.
bool in_processes(u32 count, const std::function<bool(u32)>& process) {
  std::vector<pid_t> children;
  for (u32 number = 0; number < count; ++number) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 1;
      try {
        code = process(number) ? 0 : 2;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "process %u: %s\n", number, error.what());
      }
      _exit(code);
    }
    children.push_back(child);
  }
  bool ok = true;
  for (const pid_t child : children) {
    int status = 0;
    ok = waitpid(child, &status, 0) == child && status == 0 && ok;
  }
  return ok;
}

}  // namespace

TEST_CASE("each process has its own actors, counts and stamps") {
  const auto program = ring(3);
  CHECK(processes_of(program) == 3);
  CHECK(in_lockstep(program));
  const auto part = part_of(program, 1);
  CHECK(part.actors.size() == 1);
  CHECK(part.actors[0].process == 1);
  CHECK(part.regions.size() == 3);
  const auto order = part_of(program, Order{1, {{1, 2, 3}, {4, 5, 6}}, true}, 1);
  CHECK(order.batches == std::vector<std::vector<u32>>{{2}, {5}});
  Trace trace;
  trace.samples = 1;
  trace.batches = 2;
  trace.actors = 1;
  trace.stamps = {{1, 2}, {3, 4}};
  const auto whole = among_all(program, trace, 1);
  CHECK(whole.actors == 3);
  REQUIRE(whole.stamps.size() == 6);
  CHECK(whole.at(0, 0, 1).exit_s == 2);
  CHECK(whole.at(0, 1, 1).enter_s == 3);
  CHECK(whole.at(0, 1, 2).exit_s == 0);
}

TEST_CASE("a process opens the regions of others that its actors use, in the same order everywhere") {
  const auto of_ring = openings(ring(3));
  REQUIRE(of_ring.size() == 3);
  CHECK(of_ring[0].region == 0);
  CHECK(of_ring[0].process == 2);
  CHECK(of_ring[1].process == 0);
  const auto across = openings(build_program(copy("d2d", "gpu:0", "gpu:1", MemKind::ipc, MemKind::ipc)));
  REQUIRE(across.size() == 3);  // the pushing GPU opens the other GPU's memory for itself
  CHECK(!across[1].gpu);
  CHECK(across[2].gpu == 0);
}

TEST_CASE("a process whose memory others use alone takes no part in samples") {
  const auto program = build_program(copy("h2d", "numa:0", "gpu:0", MemKind::pinned, MemKind::ipc));
  CHECK(processes_of(program) == 2);
  CHECK(!in_lockstep(program));
  CHECK(acts(program, 0));
  CHECK(!acts(program, 1));
  CHECK(filler_of(program, 1) == 0);
}

TEST_CASE("words go around a ring of three processes, each with its own memory") {
  const auto program = ring(3);
  const auto meeting = "ring-" + std::to_string(getpid());
  CHECK(in_processes(3, [&](u32 process) {
    const auto cuda = make_cuda();
    cuda->join(process, 3, meeting, {});
    bool ok = true;
    for (int again = 0; again < 2; ++again) {
      const auto session = cuda->prepare(program, "ring#0");
      const auto trace = cuda->run(*session, {2, {{5, 5, 5}, {90, 90, 90}}, true});
      ok = ok && session->acts && trace.verdict->ok && trace.verdict->checked_bytes == sizeof(u64);
      for (u32 actor = 0; actor < 3; ++actor)
        ok = ok && (trace.at(1, 1, actor).exit_s > trace.at(1, 1, actor).enter_s) == (actor == process);
    }
    return ok;
  }));
}

TEST_CASE("actors of several processes run for a duration and have one common time") {
  Program program;
  const Place node{PlaceKind::numa, 0, one_host, {}};
  for (u32 process = 0; process < 2; ++process) {
    auto one = build_program([&] {
      auto c = copy("h2h", "numa:0", "numa:0", MemKind::pageable, MemKind::pinned);
      c.engine = Engine::cpu;
      return c;
    }());
    for (auto& region : one.regions) region.process = process;
    for (auto& actor : one.actors) actor.process = process, actor.singly = true;
    program = process == 0 ? one : together({program, one});
  }
  const auto meeting = "lasting-" + std::to_string(getpid());
  auto* windows = static_cast<Window*>(
      mmap(nullptr, 2 * sizeof(Window), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(windows != MAP_FAILED);
  CHECK(in_processes(2, [&](u32 process) {
    const auto cuda = make_cuda();
    cuda->join(process, 2, meeting, {});
    const auto session = cuda->prepare(program, "lasting#0");
    const auto trace = cuda->run(*session, {1, {}, true, Duration{Seconds{1.0}, Seconds{0.01}}});
    windows[process] = trace.windows[0];
    const auto &own = trace.series[process], &other = trace.series[1 - process];
    return trace.verdict->ok && trace.series.size() == 2 && own.latencies.count() == own.marks.back().iterations &&
           own.latencies.count() > 0 && own.interval_iterations.size() == other.interval_iterations.size() &&
           own.interval_iterations.size() > 0 && other.marks.back().iterations == 0 && !other.latencies.quantile(0.5);
  }));
  CHECK(windows[0].start_s == windows[1].start_s);
  CHECK(windows[0].end_s == windows[1].end_s);
  munmap(windows, 2 * sizeof(Window));
}

TEST_CASE("processes that did not join, or of another number, prepare nothing together") {
  const auto cuda = make_cuda();
  CHECK_THROWS_WITH_AS((void)cuda->prepare(ring(2), "ring#0"),
                       "the processes of the program have not joined each other", Error);
}
