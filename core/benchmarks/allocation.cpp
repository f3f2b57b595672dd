// The cost of each kind of memory besides its rate: allocate, pin, map, touch for the first time and free, by size
// (Comm|Scope 3.1 pins by cudaHostRegister). With the rates of copies of that kind it gives the number of copies after
// which pinning pays off.
#include <algorithm>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"
#include "program/allocation.hpp"

namespace linkscope {
namespace {

using namespace literals;

/// Allocations per sample: few small allocations are imprecise, and many large ones exceed a node's memory. At least
/// four, so that two can be compared with the double.
u32 allocation_count(u64 bytes) { return static_cast<u32>(std::clamp<u64>(64_MiB / bytes, 4, 32)); }

constexpr std::pair<std::string_view, u64> sizes[] = {{"4KiB", 4_KiB},   {"64KiB", 64_KiB}, {"1MiB", 1_MiB},
                                                      {"16MiB", 16_MiB}, {"64MiB", 64_MiB}, {"256MiB", 256_MiB},
                                                      {"1GiB", 1_GiB}};

u64 size_of(const Case& c) {
  const auto size = c.param("size", std::string{sizes[0].first});
  return std::find_if(std::begin(sizes), std::end(sizes), [&](const auto& one) { return one.first == size; })->second;
}

/// The allocated size is a parameter and not the operation's bytes, because nothing moves and there is no rate.
Param size_param() {
  std::vector<std::string_view> names;
  for (const auto& [name, bytes] : sizes) names.push_back(name);
  return {"size", std::move(names), "of each allocation"};
}

Program build_allocation(const Case& c) {
  const bool on_gpu = c.src.kind == PlaceKind::gpu;
  const u64 bytes = size_of(c), page = completed(c, {c.src, c.src_memory}).page_bytes;
  const u64 stride = page ? (bytes + page - 1) / page * page : bytes;  // no two share a huge page
  const u32 count = allocation_count(stride);
  const auto phase = c.param("phase", "allocate");
  (void)phase_index(c.src_memory, phase);
  Program program;
  program.regions.push_back(completed(c, {c.src, c.src_memory, stride * count, Content::pattern}));
  const Span each{0, 0, bytes, stride, count};
  Actor actor;
  actor.clock = Clock::host;
  if (c.dst.kind == PlaceKind::gpu) {  // its context allocates or pins
    actor.place = c.dst;
    if (!on_gpu) actor.cpu = c.src;
  } else {
    actor.place = c.src;
    actor.kind = ActorKind::cpu_thread;
  }
  if (by_owner(c.src_memory, phase)) actor.process = program.regions.front().process;
  actor.once.push_back(Call{.api = phase, .span = each, .until = true});
  actor.loop.push_back(Call{.api = phase, .span = each});
  program.actors.push_back(std::move(actor));
  program.flows.push_back({0, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes});
  program.most_iterations = count;
  return program;
}

}  // namespace

std::vector<Benchmark> allocations() {
  using enum PlaceKind;
  using enum MemKind;
  const auto row = [](const char* summary, PlaceKind src, PlaceKind dst, std::vector<MemKind> kinds,
                      bool huge = false) {
    std::vector<std::pair<MemKind, MemKind>> memories;
    for (const MemKind kind : kinds) memories.emplace_back(kind, src == numa && dst == gpu ? device : kind);
    constexpr bool sized = false;
    const auto known = phases_of(kinds.front());
    std::vector<std::string_view> phases;
    for (const auto phase : known) {
      phases.push_back(phase);
      if (kinds.front() == pool && phases.size() == 1) phases.push_back("grow");
    }
    std::vector<Param> params{{"phase", phases, "the timed phase of an allocation; the phases before it run untimed"},
                              size_param()};
    if (huge) params.push_back(pages_param());
    return Benchmark{"allocation",
                     summary,
                     "Comm|Scope 3.1 (CS-3), CUDA driver API: cost of each memory kind",
                     Engine::cpu,
                     src,
                     dst,
                     src == dst ? Relation::same : Relation::any,
                     std::move(memories),
                     std::move(params),
                     build_allocation,
                     sized};
  };
  return of_role(
      Role::call,
      {
          row("a CPU thread allocates, touches and frees host memory", numa, numa, {pageable}),
          row("a CPU thread allocates, touches and frees huge pages", numa, numa, {hugepage}, true),
          row("the driver allocates and frees page-locked host memory", numa, gpu, {pinned, wc, mapped}),
          row("a CPU thread allocates and touches host memory, and the driver pins it", numa, gpu, {registered}),
          row("a CPU thread allocates and touches huge pages, and the driver pins them", numa, gpu,
              {registered_hugepage}, true),
          row("the driver allocates and frees memory of a GPU", gpu, gpu, {device}),
          row("the driver allocates and frees GPU memory from its stream-ordered pool", gpu, gpu, {pool}),
          row("virtual memory management: create, map, touch, unmap and release GPU memory", gpu, gpu, {vmm}),
          row("a second process allocates GPU memory and exports an IPC handle, and this process opens it", gpu, gpu,
              {ipc}),
          row("a second process creates GPU memory and exports a file descriptor, and this process imports and maps it",
              gpu, gpu, {posix_fd}),
          row("a second process creates and touches host memory, and this process maps and pins it", numa, gpu, {shm}),
      });
}

}  // namespace linkscope
