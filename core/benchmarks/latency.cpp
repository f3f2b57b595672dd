// nvbandwidth host_device_latency_sm and device_to_device_latency_sm: a thread follows a chain of
// addresses through memory, each load needing the one before. An iteration is a step, a batch one launch.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build(const Case& c) {
  const u64 bytes = c.param("range", "2MiB") == "2MiB" ? u64{2} << 20 : u64{64} << 20;
  Kernel kernel{"chase", {1, 1}, 1, {{{0, 0, bytes, bytes, 1}, Access::Dir::read, Access::Pattern::chase, 8}}};
  Program program = one_sided(c, c.src, c.src_memory, c.dst, Content::chain, bytes, std::move(kernel));
  program.cache = c.param("cache", "cold") == "cold" ? CacheState::cold : CacheState::hot;
  return program;
}

}  // namespace

std::vector<Benchmark> latencies() {
  using enum PlaceKind;
  using enum MemKind;
  using Memories = std::vector<std::pair<MemKind, MemKind>>;
  const auto row = [](const char* summary, Engine engine, PlaceKind src, PlaceKind dst, const Memories& memories) {
    constexpr bool sized = false;
    return Benchmark{"latency", summary, "nvbandwidth host_device_latency_sm and device_to_device_latency_sm", engine, src, dst,
                     Relation::any, memories,
                     {{"range", {"2MiB", "64MiB"}, "how much memory the chain leads through, a line of 256 B a step"},
                      {"cache", {"cold", "hot"}, "whether caches hold what of the chain they can"}},
                     build, sized};
  };
  return {
      row("a GPU thread follows a chain through host memory", Engine::sm, numa, gpu, {{pinned, device}, {registered, device}}),
      row("a GPU thread follows a chain through its GPU's memory or another's", Engine::sm, gpu, gpu, {{device, device}}),
      row("a CPU thread follows a chain through host memory", Engine::cpu, numa, numa, {{pageable, pageable}}),
      row("a CPU thread follows a chain through a GPU's memory, where it can load from there", Engine::cpu, gpu, numa, {{device, pageable}}),
  };
}

}  // namespace linkscope
