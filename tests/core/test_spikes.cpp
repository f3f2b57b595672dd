// Six operations that later work needs, each as a program of at most 60 lines that the simulation runs.
// docs/notes/six-operations.md has the findings.
#include <doctest.h>

#include <cmath>

#include "program/program.hpp"
#include "program/series.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

/// Runs `iterations` of every actor, compares all data, and returns the time in seconds.
double run_on(Platform& sim, const Program& program, u32 iterations) {
  validate(program);
  const auto support = sim.supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = sim.prepare(program, "spike#0");
  const auto trace = sim.run(*session, {1, {std::vector<u32>(program.actors.size(), iterations)}, true});
  CHECK(trace.verdict->ok);
  CHECK(trace.verdict->checked_bytes > 0);
  double end = 0, start = 1e9;
  for (const auto& stamp : trace.stamps) start = std::min(start, stamp.enter_s), end = std::max(end, stamp.exit_s);
  return end - start;
}

Actor block(const Place& at, u32 threads, std::vector<Step> loop) {
  return {at, ActorKind::gpu_block, Clock::event, {}, 0, {}, std::move(loop), threads};
}

Actor thread(const Place& at, std::vector<Step> loop, u32 process = 0) {
  return {at, ActorKind::cpu_thread, Clock::host, {}, process, {}, std::move(loop)};
}

/// The value of a word before which a ring's producer does not reuse a slot: its first iterations wait for nobody.
constexpr u64 before_reuse(u64 slots) { return 1 - slots; }

/// A GPU block writes messages into a ring in mapped memory. Validity words rotate with the slots, so the proxy polls
/// where the next message arrives, and nobody rings a doorbell.
Program block_posts_to_cpu_proxy(u64 bytes, u32 slots) {
  const u64 stride = (bytes + line - 1) / line * line;
  Program p;
  p.regions = {{gpu(0), MemKind::device, 64 * stride, Content::pattern},
               {numa(0), MemKind::pinned, slots * stride, Content::poison},
               {numa(1), MemKind::pageable, 64 * stride, Content::poison},
               {numa(0), MemKind::pinned, (slots + 1) * line, Content::zero}};
  const Span source{0, 0, bytes, stride, 64}, slot{1, 0, bytes, stride, slots}, target{2, 0, bytes, stride, 64};
  const Span valid{3, 0, word, line, slots}, taken{3, slots * line, word};
  p.actors = {
      block(gpu(0), 128, {Wait{taken, before_reuse(slots), 1}, Move{source, slot, Engine::sm}, Set{valid, 1, 1}}),
      thread(numa(0), {Wait{valid, 1, 1}, Move{slot, target, Engine::cpu}, Set{taken, 1, 1}})};
  p.flows = {{1, gpu(0), numa(1), MemKind::device, MemKind::pageable, bytes}};
  return p;
}

/// A product of matrices on one stream, copies to the same GPU on another.
Program gemm_beside_copies(u64 n) {
  const u64 bytes = n * n * 4;
  Program p;
  p.regions = {{gpu(0), MemKind::device, 3 * bytes, Content::pattern},
               {numa(0), MemKind::pinned, 16_MiB, Content::pattern},
               {gpu(0), MemKind::device, 16_MiB, Content::poison}};
  using enum Access::Dir;
  const auto matrix = [&](u64 i) { return Span{0, i * bytes, bytes}; };
  Actor gemm, copy;
  gemm.place = copy.place = gpu(0);
  gemm.loop = {Opaque{"cublas_gemm",
                      "f32",
                      {n, n, n},
                      {{matrix(0), read}, {matrix(1), read}, {matrix(2), write}},
                      2.0 * static_cast<double>(n * n * n)}};
  copy.loop = {Move{{1, 0, 16_MiB}, {2, 0, 16_MiB}, Engine::ce}};
  p.actors = {gemm, copy};
  p.flows = {{1, numa(0), gpu(0), MemKind::pinned, MemKind::device, 16_MiB}};
  return p;
}

/// From GPU to GPU through two pinned buffers: one stream fills them, the other empties them.
Program staged_by_two_buffers(u64 bytes, u32 buffers) {
  Program p;
  p.regions = {{gpu(0), MemKind::device, 64 * bytes, Content::pattern},
               {numa(0), MemKind::pinned, buffers * bytes, Content::poison},
               {gpu(1), MemKind::device, 64 * bytes, Content::poison},
               {numa(0), MemKind::pinned, 2 * line, Content::zero}};
  const Span source{0, 0, bytes, bytes, 64}, buffer{1, 0, bytes, bytes, buffers}, target{2, 0, bytes, bytes, 64};
  const Span full{3, 0, word}, empty{3, line, word};
  Actor fills, empties;
  fills.place = gpu(0);
  fills.loop = {Wait{empty, before_reuse(buffers), 1}, Move{source, buffer, Engine::ce}, Set{full, 1, 1}};
  empties.place = gpu(1);
  empties.loop = {Wait{full, 1, 1}, Move{buffer, target, Engine::ce}, Set{empty, 1, 1}};
  p.actors = {fills, empties};
  p.flows = {{1, gpu(0), gpu(1), MemKind::device, MemKind::device, bytes}};
  return p;
}

/// A ring of GPU blocks. In each step a block puts a chunk into its neighbour's inbox and tells it, waits for its own inbox,
/// and reads it, as the addition would. A full all-reduce of n GPUs is 2 (n - 1) steps.
Program allreduce_ring(u32 gpus, u64 chunk) {
  Program p;
  p.peer = true;
  for (u32 g = 0; g < gpus; ++g) {
    p.regions.push_back({gpu(g), MemKind::device, 2 * chunk, Content::pattern});  // chunks to send
    p.regions.push_back({gpu(g), MemKind::device, 2 * chunk, Content::poison});   // inbox of two slots
    p.regions.push_back({gpu(g), MemKind::device, 2 * line, Content::zero});      // arrived, and free
  }
  for (u32 g = 0; g < gpus; ++g) {
    const u32 own = 3 * g, next = 3 * ((g + 1) % gpus), before = 3 * ((g + gpus - 1) % gpus);
    const Span from{own, 0, chunk, chunk, 2}, to{next + 1, 0, chunk, chunk, 2}, inbox{own + 1, 0, chunk, chunk, 2};
    const Access reads{inbox, Access::Dir::read};
    p.actors.push_back(block(
        gpu(g), 512,
        {Wait{{own + 2, line, word}, before_reuse(2), 1}, Move{from, to, Engine::sm}, Set{{next + 2, 0, word}, 1, 1},
         Wait{{own + 2, 0, word}, 1, 1}, Kernel{KernelId::read, {}, 0, {reads}}, Set{{before + 2, line, word}, 1, 1}}));
    p.flows.push_back({g, gpu(g), gpu((g + 1) % gpus), MemKind::device, MemKind::device, chunk});
  }
  return p;
}

/// A file, read straight into a GPU's memory by one thread.
Program file_into_gpu(u64 bytes) {
  const Place disk = parse_place("disk:0");
  Program p;
  p.regions = {{disk, MemKind::file, 16 * bytes, Content::pattern},
               {gpu(0), MemKind::device, 16 * bytes, Content::poison}};
  p.actors = {thread(numa(0), {Move{{0, 0, bytes, bytes, 16}, {1, 0, bytes, bytes, 16}, Engine::file}})};
  p.flows = {{0, disk, gpu(0), MemKind::file, MemKind::device, bytes}};
  return p;
}

/// Two ranks that exchange messages by a local socket: a rank copies its message into the socket's buffer in the kernel,
/// the other one copies it out, and both do so at once. Words stand for the counts of bytes in the buffers.
Program two_ranks_by_socket(u64 bytes) {
  Program p;
  p.regions = {{numa(0), MemKind::shm, 2 * bytes, Content::poison, 0, 1},
               {numa(0), MemKind::shm, 4 * line, Content::zero, 0, 1}};
  for (u32 rank = 0; rank < 2; ++rank) {
    p.regions.push_back({numa(rank), MemKind::pageable, bytes, Content::pattern, 0, rank});
    p.regions.push_back({numa(rank), MemKind::pageable, bytes, Content::poison, 0, rank});
  }
  for (u32 rank = 0; rank < 2; ++rank) {
    const u32 other = 1 - rank, own = 2 + 2 * rank;
    const auto buffer = [&](u32 sender) { return Span{0, sender * bytes, bytes}; };
    const auto sent = [&](u32 sender) { return Span{1, sender * line, word}; };
    const auto taken = [&](u32 sender) { return Span{1, (2 + sender) * line, word}; };
    p.actors.push_back(thread(
        numa(rank),
        {Wait{taken(rank), before_reuse(1), 1}, Move{{own, 0, bytes}, buffer(rank), Engine::cpu}, Set{sent(rank), 1, 1},
         Wait{sent(other), 1, 1}, Move{buffer(other), {own + 1, 0, bytes}, Engine::cpu}, Set{taken(other), 1, 1}},
        rank));
    p.flows.push_back({rank, numa(rank), numa(other), MemKind::pageable, MemKind::pageable, bytes});
  }
  return p;
}

}  // namespace

TEST_CASE("a GPU block posts messages to a CPU proxy, and a deeper ring hides the proxy's answers") {
  const auto sim = make_sim(toy(), 1);
  const double one = run_on(*sim, block_posts_to_cpu_proxy(64, 1), 200),
               eight = run_on(*sim, block_posts_to_cpu_proxy(64, 8), 200);
  CHECK(eight < 0.8 * one);
  // No message takes less than its word needs to the proxy's memory.
  CHECK(one / 200 > 0.5e-6);
}

TEST_CASE(
    "a GEMM runs beside copies, takes the time of its operations, and leaves them what it does not need of the "
    "memory") {
  auto machine = toy();
  auto& rate = machine["gpu"][0]["f32_tflops"];
  rate = 2 * std::pow(1024.0, 3) / 0.002 / 1e12;
  const auto sim = make_sim(machine, 1);
  const auto both = gemm_beside_copies(1024);
  auto alone = both;
  alone.actors.pop_back();
  alone.flows.clear();
  CHECK(slope(*sim, alone) == about(0.002).epsilon(0.01));
  // With little to compute, its accesses bound it: 12 MiB at the 500 GB/s that threads get here.
  auto fast = machine;
  fast["gpu"][0]["f32_tflops"] = 1e6;
  CHECK(slope(*make_sim(fast, 1), alone) > 12 * 1048576 / 500e9);
  const auto session = sim->prepare(both, "gemm#0");
  const auto trace = sim->run(*session, {1, {}, true, Duration{Seconds{0.1}, Seconds{0.01}}});
  CHECK(trace.series[0].marks.back().iterations == about(50).epsilon(0.03));
  for (const u64 moved : trace.series[1].interval_bytes)
    CHECK(static_cast<double>(moved) / 0.01 == about(10e9).epsilon(0.01));
  // The GEMM's threads need 12.6 GB/s of a memory of 16 GB/s, because they get half of its rate; the copy gets the rest.
  machine["gpu"][0]["memory_gbps"] = 16;
  const auto narrow = make_sim(machine, 1);
  const auto beside = narrow->prepare(both, "gemm#0");
  const auto contended = narrow->run(*beside, {1, {}, true, Duration{Seconds{0.1}, Seconds{0.01}}});
  // The last copy ends after the last GEMM, so its share of the last interval is larger.
  for (const u64 moved : contended.series[1].interval_bytes)
    CHECK(static_cast<double>(moved) / 0.01 == about(3.4e9).epsilon(0.15));
}

TEST_CASE("a library call without traffic, and a product of an unknown rate, are refused") {
  const auto sim = make_sim(toy(), 1);
  auto program = gemm_beside_copies(1024);
  CHECK(sim->supports(program).why_not.find("does not say how fast gpu:0 computes with f32") != std::string::npos);
  std::get<Opaque>(program.actors[0].loop[0]).traffic.clear();
  CHECK(sim->supports(program).why_not.find("'cublas_gemm' states no traffic") != std::string::npos);
}

TEST_CASE("a staged copy with two buffers overlaps its halves, with one buffer it does not") {
  const auto sim = make_sim(toy(), 1);
  const double one = run_on(*sim, staged_by_two_buffers(4_MiB, 1), 64),
               two = run_on(*sim, staged_by_two_buffers(4_MiB, 2), 64);
  CHECK(two < 0.6 * one);
  CHECK(64 * 4_MiB / two < 10e9);  // the slower bus
}

TEST_CASE("four GPU blocks pass chunks around a ring, and every step has the time of a put") {
  const auto sim = make_sim(exact(bundled("h200x4")), 1);
  const double few = run_on(*sim, allreduce_ring(4, 256_KiB), 6), many = run_on(*sim, allreduce_ring(4, 256_KiB), 60);
  CHECK(many / few == about(10).epsilon(0.1));
}

TEST_CASE("a file goes into a GPU at the rate of its disk") {
  const auto machine = exact(bundled("jorda-a"));
  const auto sim = make_sim(machine, 1);
  const double time = run_on(*sim, file_into_gpu(16_MiB), 16);
  CHECK(16 * 16_MiB / time < 0.13e9);
  CHECK(16 * 16_MiB / time > 0.10e9);
}

TEST_CASE("two ranks exchange messages by a socket's buffers, two copies each way") {
  const auto sim = make_sim(toy(), 1);
  const double time = run_on(*sim, two_ranks_by_socket(1_MiB), 32) / 32;
  CHECK(time > 2 * 1_MiB / 5e9);  // two copies by each rank's thread, at best near
  CHECK(time < 3 * 2 * 1_MiB / 4e9);
}
