// microbench 3 (MB-3): the latency of one page fault. A thread follows a chain of addresses, each in another page of
// remote managed memory.
#include "base/units.hpp"
#include "benchmarks/managed.hpp"

namespace linkscope {
namespace {

using namespace literals;

// A driver moves neighbouring pages along, up to 2 MiB. Steps of that distance fault each time; shorter steps show how
// many faults the driver avoids.
u64 distance(const std::string& step) { return step == "2MiB" ? 2_MiB : step == "64KiB" ? 64_KiB : 4_KiB; }

Program build_fault_latency(const Case& c) {
  const u64 apart = distance(c.param("step", "2MiB"));
  // The sampler's number of faults: at 2 MiB steps the largest managed region; for shorter steps several blocks.
  const u32 steps = apart == 2_MiB ? 512 : 4096;
  Kernel kernel{KernelId::touch_chain,
                {1, 1},
                1,
                {{{0, 0, sizeof(u64), apart, steps}, Access::Dir::read, Access::Pattern::chase, 8}}};
  Program program = managed_program(c);
  add_migration(program, c, {c.src, c.dst, c.dst, apart * steps, Content::chain, steps}, std::move(kernel));
  return program;
}

}  // namespace

std::vector<Benchmark> fault_latencies() {
  using enum PlaceKind;
  const auto row = [](const char* summary, PlaceKind src, PlaceKind dst) {
    constexpr bool sized = false, default_in_id = false;
    return Benchmark{"fault_latency",
                     summary,
                     "microbench 3 (MB-3)",
                     Engine::fault,
                     src,
                     dst,
                     Relation::any,
                     moving_memory,
                     {{"step", {"2MiB", "64KiB", "4KiB"}, "bytes from one touched page to the next", default_in_id}},
                     build_fault_latency,
                     sized};
  };
  return of_role(Role::latency, {
                                    row("pointer chase by a GPU thread through managed pages on the host", numa, gpu),
                                    row("pointer chase by a CPU thread through managed pages on a GPU", gpu, numa),
                                });
}

}  // namespace linkscope
