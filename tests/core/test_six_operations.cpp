// Tests what a program can express, by six operations that are hard to state. Each must be expressible with
// program.hpp, pass validate(), and be refused with a reason by a platform that cannot run it.
// docs/notes/six-operations.md has the findings.
#include <doctest.h>

#include "base/error.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "program/program.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

Span whole(u32 region, u64 bytes) { return {region, 0, bytes, 0, 1}; }

/// Managed memory with its home on a GPU. Four CPU threads fault it back; each touches one byte per page of its
/// quarter.
Program managed_pulled_back_by_four_threads() {
  constexpr u64 bytes = 64_MiB, part = bytes / 4;
  Program p;
  p.regions = {{gpu(0), MemKind::managed, bytes, Content::pattern}};
  for (u32 t = 0; t < 4; ++t) {
    Actor thread{numa(0), ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
    const Span quarter{0, t * part, part, 0, 1};
    // The pages go home before every sample, outside the timing.
    thread.once = {Prefetch{quarter, gpu(0)}};
    thread.loop = {Kernel{KernelId::touch, {1, 1}, 0, {{quarter, Access::Dir::read, Access::Pattern::strided, 1}}}};
    p.actors.push_back(thread);
    p.flows.push_back({t, gpu(0), numa(0), MemKind::managed, MemKind::managed, part});
  }
  return p;
}

/// A pageable source staged through a ring of pinned slots. A CPU thread fills slots, a stream empties them, and both
/// wait for each other by words whose values grow with the iteration.
Program pageable_ring() {
  constexpr u64 chunk = 2_MiB;
  constexpr u32 slots = 3, chunks = 64;
  Program p;
  p.regions = {{numa(0), MemKind::pageable, chunk * chunks, Content::pattern},
               {numa(0), MemKind::pinned, chunk * slots, Content::poison},
               {gpu(0), MemKind::device, chunk * chunks, Content::poison},
               {numa(0), MemKind::mapped, 512, Content::poison}};
  const Span source{0, 0, chunk, chunk, chunks}, slot{1, 0, chunk, chunk, slots}, target{2, 0, chunk, chunk, chunks};
  const Span filled = whole(3, 8), emptied{3, 256, 8, 0, 1};
  Actor filler{numa(0), ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  // Iteration i may fill its slot when the content of iteration i - slots has left it. Words are unsigned and waits
  // compare "at least", so the count starts at `slots` to avoid negative numbers.
  filler.loop = {Wait{emptied, 0, 1}, Move{source, slot, Engine::cpu}, Set{filled, 1, 1}};
  Actor copier{gpu(0), ActorKind::stream, Clock::event, {}, 0, {}, {}};
  copier.loop = {Wait{filled, 1, 1}, Move{slot, target, Engine::ce}, Set{emptied, slots + 1, 1}};
  filler.once = {Set{emptied, slots, 0}, Set{filled, 0, 0}};
  p.actors = {filler, copier};
  p.flows = {{1, numa(0), gpu(0), MemKind::pageable, MemKind::device, chunk}};
  return p;
}

/// Two processes with one GPU each. They answer each other by words in each other's memory.
Program ping_pong_between_two_processes() {
  Program p;
  p.peer = true;
  p.regions = {{gpu(0), MemKind::device, 256, Content::poison, 0, 0},
               {gpu(1), MemKind::device, 256, Content::poison, 0, 1}};
  Actor ping{gpu(0), ActorKind::stream, Clock::kernel, {}, 0, {}, {Set{whole(1, 8), 1, 1}, Wait{whole(0, 8), 1, 1}}};
  Actor pong{gpu(1), ActorKind::stream, Clock::kernel, {}, 1, {}, {Wait{whole(1, 8), 1, 1}, Set{whole(0, 8), 1, 1}}};
  p.actors = {ping, pong};
  p.flows = {{0, gpu(0), gpu(1), MemKind::device, MemKind::device, 8}};
  return p;
}

/// A graph of copies: before the gate closes, the platform makes one graph of a batch's iterations.
Program graph_of_copies() {
  Program p;
  p.regions = {{numa(0), MemKind::pinned, 1_MiB, Content::pattern}, {gpu(0), MemKind::device, 1_MiB, Content::poison}};
  p.actors = {{gpu(0),
               ActorKind::stream,
               Clock::event,
               numa(0),
               0,
               {},
               {Move{{0, 0, 4_KiB, 4_KiB, 256}, {1, 0, 4_KiB, 4_KiB, 256}, Engine::graph}}}};
  p.flows = {{0, numa(0), gpu(0), MemKind::pinned, MemKind::device, 4_KiB}};
  return p;
}

/// A file, read into GPU memory.
Program file_into_gpu() {
  const Place disk{PlaceKind::disk, 0, 0, "/data/set.bin"};
  Program p;
  p.regions = {{disk, MemKind::file, 1_GiB, Content::pattern}, {gpu(0), MemKind::device, 1_GiB, Content::poison}};
  p.actors = {{gpu(0),
               ActorKind::cpu_thread,
               Clock::host,
               {},
               0,
               {},
               {Move{{0, 0, 4_MiB, 4_MiB, 256}, {1, 0, 4_MiB, 4_MiB, 256}, Engine::file}}}};
  p.flows = {{0, disk, gpu(0), MemKind::file, MemKind::device, 4_MiB}};
  return p;
}

/// A chain of dependent loads through mapped host memory, each on an untouched line.
Program dependent_chase() {
  Program p;
  p.regions = {{numa(0), MemKind::mapped, 8_MiB, Content::chain}};
  const Access chase{{0, 0, 64_KiB, 64_KiB, 128}, Access::Dir::read, Access::Pattern::chase, 8};
  p.actors = {{gpu(0), ActorKind::stream, Clock::kernel, {}, 0, {}, {Kernel{KernelId::chase, {1, 1}, 512, {chase}}}}};
  p.flows = {{0, numa(0), gpu(0), MemKind::mapped, MemKind::device, 64_KiB}};
  return p;
}

}  // namespace

TEST_CASE("six operations that are hard to state are valid programs") {
  const auto platform = make_cuda();
  for (const auto& program : {managed_pulled_back_by_four_threads(), pageable_ring(), ping_pong_between_two_processes(),
                              graph_of_copies(), file_into_gpu(), dependent_chase()}) {
    CAPTURE(to_text(program));
    CHECK_NOTHROW(validate(program));
    const auto support = platform->supports(program);
    CHECK_FALSE(support);
    CHECK(support.why_not.size() > 10);
  }
}

TEST_CASE("a program's text names every region, step and flow") {
  const auto text = to_text(pageable_ring());
  for (const char* words :
       {"region r0 numa:0.pageable", "wait r3[256 +8] >= 0 + 1 i",
        "move cpu r0[0 +2097152] x64 by 2097152 -> r1[0 +2097152] x3 by 2097152", "set r3[0 +8] = 1 + 1 i",
        "actor a1 stream gpu:0 clock event", "flow a1 numa:0.pageable -> gpu:0.device 2097152 B"})
    CHECK_MESSAGE(text.find(words) != std::string::npos, words, " in\n", text);
}

TEST_CASE("validate names the step that is wrong") {
  auto program = graph_of_copies();
  auto& move = std::get<Move>(program.actors[0].loop[0]);
  move.to.slices = 257;
  CHECK_THROWS_WITH_AS(validate(program),
                       doctest::Contains("actor a0 loop: r1[0 +4096] x257 by 4096 ends at byte 1052672"), Error);
  move.to.slices = 256;
  move.to.bytes = 2048;
  CHECK_THROWS_WITH_AS(validate(program), doctest::Contains("a move of unequal lengths"), Error);
  move.to.region = 7;
  CHECK_THROWS_WITH_AS(validate(program), doctest::Contains("region 7 does not exist"), Error);
}
