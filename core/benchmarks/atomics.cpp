// Comm|Scope 7 (CS-40): GPU threads add to words of their GPU's memory, a peer's or the host's by atomic operations: as
// fast as possible, or one after the other, each using the result of the one before.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Scope scope_of(const Case& c) { return c.param("scope", "gpu") == "gpu" ? Scope::gpu : Scope::system; }

/// One addition for every 8 bytes.
Program build_rate(const Case& c) {
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

Program build_latency(const Case& c) {
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
  return {
      row("atomic", "GPU threads add to words of host memory, 8 bytes an addition", numa, host, rate, build_rate, true),
      row("atomic", "GPU threads add to words of GPU memory, their own or a peer's, 8 bytes an addition", gpu, own,
          rate, build_rate, true),
      row("atomic_latency",
          "a GPU thread adds to a word of host memory; each addition needs the result of the one before", numa, host,
          alone, build_latency, false),
      row("atomic_latency",
          "a GPU thread adds to a word of GPU memory, its own or a peer's; each addition needs the result of the one "
          "before",
          gpu, own, alone, build_latency, false),
  };
}

}  // namespace linkscope
