// Klenk, Oden, Froning (KL-12): what others lose whose kernels share the GPU with one that posts or polls. The measured
// work is a product of matrices, which keeps all SMs busy.
#include <string>
#include <utility>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program product(const Case& c) {
  auto program = build_program({"gemm", Engine::sm, c.src, c.src, c.src_memory, c.src_memory, 0, 0, {}});
  auto& flow = program.flows.front();
  flow = {0, c.src, c.dst, c.src_memory, c.dst_memory, 0, true, flow.operations};
  return program;
}

void add_unmeasured(Program& program, const Case& c, Actor actor) {
  program.flows.push_back(
      {static_cast<u32>(program.actors.size()), c.src, c.dst, c.src_memory, c.dst_memory, 0, false});
  program.actors.push_back(std::move(actor));
}

/// A block that posts descriptors without end to a ring in host memory.
Program poster(const Case& c) {
  auto program = build_program({"post", Engine::sm, c.src, c.dst, c.src_memory, c.dst_memory, 0, 0, {}});
  program.flows.front().measured = false;
  return program;
}

/// Blocks that poll one word in host memory, which a CPU thread sets when all of them have seen it.
Program pollers(const Case& c, u32 blocks) {
  Program program;
  for (u32 word = 0; word < 2; ++word) program.regions.push_back({c.dst, c.dst_memory, line_bytes, Content::zero});
  const Span told{0, 0, word_bytes}, seen{1, 0, word_bytes};
  Set answer{seen, 1, 1};
  answer.adds = true;
  for (u32 block = 0; block < blocks; ++block) {
    Actor actor;
    actor.place = c.src;
    actor.kind = ActorKind::gpu_block;
    actor.loop = {Wait{told, 1, 1}, answer};
    add_unmeasured(program, c, std::move(actor));
  }
  Actor thread;
  thread.place = c.dst;
  thread.kind = ActorKind::cpu_thread;
  thread.clock = Clock::host;
  thread.loop = {Set{told, 1, 1}, Wait{seen, blocks, blocks}};
  add_unmeasured(program, c, std::move(thread));
  return program;
}

Program build_bystanders(const Case& c) {
  const auto beside = c.param("beside", "none");
  const u32 blocks = c.number("blocks", "1");
  std::vector<Program> programs{product(c)};
  if (beside == "post") programs.insert(programs.end(), blocks, poster(c));
  if (beside == "poll") programs.push_back(pollers(c, blocks));
  auto program = together(programs);
  for (auto& actor : program.actors)
    if (actor.kind == ActorKind::gpu_block) actor.grid = 0;  // kernels of their own could have to wait for each other
  return program;
}

}  // namespace

std::vector<Benchmark> bystanders() {
  constexpr bool not_in_id = false, sized = false;
  return {{"bystander",
           "products of bf16 matrices beside blocks of a kernel that posts to host memory, or polls there",
           "Klenk 6 (KL-12)",
           Engine::sm,
           PlaceKind::gpu,
           PlaceKind::numa,
           Relation::any,
           {{MemKind::device, MemKind::pinned}},
           {{"beside", {"none", "post", "poll"}, "what the other blocks do; none: the products alone"},
            {"blocks", {"1", "4", "16", "32"}, "blocks that post or poll, of one thread each", not_in_id}},
           build_bystanders,
           sized,
           Taken::by_name,
           Role::contention}};
}

}  // namespace linkscope
