// Comm|Scope 7 (CS-40): GPU threads add to words of their GPU's memory, a peer's or the host's by atomic operations: as
// fast as possible, or one after the other, each using the result of the one before. A CPU thread adds beside them.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Scope scope_of(const Case& c) { return c.param("scope", "gpu") == "gpu" ? Scope::gpu : Scope::system; }

/// One addition for every 8 bytes.
Program build_additions(const Case& c) {
  const u64 stride = slice_stride(c.bytes);
  const u32 slices = slice_count(c.bytes, c.footprint_bytes, c.engine);
  const auto pattern = c.param("words", "each") == "each" ? Access::Pattern::linear : Access::Pattern::same;
  Kernel kernel{KernelId::add,
                kernel_shape(c),
                0,
                {{{0, 0, c.bytes, stride, slices}, Access::Dir::write, pattern, sizeof(u64)}},
                scope_of(c)};
  return one_sided(c, {c.dst, c.dst_memory, stride * slices, Content::zero}, c.src, std::move(kernel));
}

Program build_single_additions(const Case& c) {
  constexpr u64 line = 256;
  Kernel kernel{KernelId::add_chain,
                {1, 1},
                1,
                {{{0, 0, sizeof(u64), 0, 1}, Access::Dir::write, Access::Pattern::same, sizeof(u64)}},
                scope_of(c)};
  Program program = one_sided(c, {c.dst, c.dst_memory, line, Content::zero}, c.src, std::move(kernel));
  program.cache = CacheState::hot;  // with one word, all later steps add to the first
  return program;
}

/// Each side adds to one word, which is the same for both or lies elsewhere.
Program build_shared(const Case& c) {
  const bool contended = c.param("words", "one") == "one";
  const auto by = c.param("by", "both");
  const u64 apart = contended ? 0 : slice_stride(c.bytes);
  const Region words{c.dst, c.dst_memory, slice_stride(c.bytes) + apart, Content::zero};
  const auto adds = [&](u64 offset, const Shape& shape) {
    return Kernel{KernelId::add,
                  shape,
                  0,
                  {{{0, offset, c.bytes, 0, 1}, Access::Dir::write, Access::Pattern::same, sizeof(u64)}},
                  Scope::system};
  };
  Program program;
  program.cache = CacheState::hot;  // the words stay where the additions before have left them
  program.regions.push_back(words);
  if (by != "cpu") {
    program.flows.push_back({0, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes});
    program.actors.push_back({c.src, ActorKind::stream, Clock::event, c.dst, 0, {}, {adds(0, kernel_shape(c))}});
  }
  if (by != "gpu") {
    program.flows.push_back(
        {static_cast<u32>(program.actors.size()), c.dst, c.dst, c.dst_memory, c.dst_memory, c.bytes});
    program.actors.push_back({c.dst, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {adds(apart, {1, 1})}});
  }
  return program;
}

}  // namespace

std::vector<Benchmark> atomics() {
  using enum PlaceKind;
  using enum MemKind;
  using Memories = std::vector<std::pair<MemKind, MemKind>>;
  const Param scope{"scope",
                    {"gpu", "system"},
                    "scope of the atomic operation: threads of this GPU, or all processors of the system"};
  const Param words{
      "words", {"each", "one"}, "each: every addition has its own word; one: all additions share one word"};
  const auto row = [](const char* name, const char* summary, PlaceKind dst, const Memories& memories,
                      std::vector<Param> params, Program (*build)(const Case&), bool sized) {
    return Benchmark{name,
                     summary,
                     "Comm|Scope 7 (CS-40)",
                     Engine::sm,
                     gpu,
                     dst,
                     Relation::any,
                     memories,
                     std::move(params),
                     build,
                     sized,
                     Taken::by_name,
                     sized ? Role::atomic : Role::latency};
  };
  const Memories host{{device, pinned}, {device, registered}}, own{{device, device}};
  const std::vector<Param> rate{scope, words}, alone{scope};
  const std::vector<Param> both_sides{
      {"by", {"both", "gpu", "cpu"}, "both: GPU threads and a CPU thread add at the same time; or one side alone"},
      {"words", {"one", "apart"}, "one: all additions share one word; apart: each side has a word of its own"}};
  return {
      row("atomic", "GPU threads add to words of host memory, 8 bytes an addition", numa, host, rate, build_additions,
          true),
      row("atomic", "GPU threads add to words of GPU memory, their own or a peer's, 8 bytes an addition", gpu, own,
          rate, build_additions, true),
      row("atomic_shared",
          "GPU threads and a CPU thread add to words of host memory at the same time, 8 bytes an addition", numa, host,
          both_sides, build_shared, true),
      row("atomic_latency",
          "a GPU thread adds to a word of host memory; each addition needs the result of the one before", numa, host,
          alone, build_single_additions, false),
      row("atomic_latency",
          "a GPU thread adds to a word of GPU memory, its own or a peer's; each addition needs the result of the one "
          "before",
          gpu, own, alone, build_single_additions, false),
  };
}

}  // namespace linkscope
