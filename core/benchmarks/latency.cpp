// nvbandwidth host_device_latency_sm and device_to_device_latency_sm: a thread follows a chain of addresses through
// memory; each load depends on the one before. An iteration is a step, a batch one launch.
#include <array>
#include <string>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_latency(const Case& c) {
  const u64 bytes = c.param("range", "2MiB") == "2MiB" ? u64{2} << 20 : u64{64} << 20;
  Kernel kernel{KernelId::chase, {1, 1}, 1, {{{0, 0, bytes, bytes, 1}, Access::Dir::read, Access::Pattern::chase, 8}}};
  if (const auto sm = c.param("sm", "any"); sm != "any") {
    kernel.shape.blocks = 0;
    kernel.sm = static_cast<u32>(std::stoul(sm));
  }
  Program program = one_sided(c, {c.src, c.src_memory, bytes, Content::chain}, c.dst, std::move(kernel));
  program.cache = c.param("cache", "cold") == "cold" ? CacheState::cold : CacheState::hot;
  return program;
}

constexpr std::size_t most_sms = 256;

/// "0" to "255", stored as long as the table of benchmarks.
const std::array<std::string, most_sms>& sm_numbers() {
  static const auto numbers = [] {
    std::array<std::string, most_sms> all;
    for (std::size_t sm = 0; sm < most_sms; ++sm) all[sm] = std::to_string(sm);
    return all;
  }();
  return numbers;
}

Param sm_param() {
  constexpr bool default_in_id = false, paths = false;
  std::vector<std::string_view> values{"any"};
  values.insert(values.end(), sm_numbers().begin(), sm_numbers().end());
  return {"sm",  std::move(values),  "number of the SM that runs the thread; any: the GPU chooses", default_in_id,
          paths, {"any", "0 to 255"}};
}

}  // namespace

std::vector<Benchmark> latencies() {
  using enum PlaceKind;
  using enum MemKind;
  using Memories = std::vector<std::pair<MemKind, MemKind>>;
  const auto row = [](const char* summary, Engine engine, PlaceKind src, PlaceKind dst, const Memories& memories) {
    constexpr bool sized = false;
    std::vector<Param> params{
        {"range", {"2MiB", "64MiB"}, "bytes that the pointer chase covers, 256 B a step"},
        {"cache", {"cold", "hot"}, "hot: caches hold as much of the chase as fits; cold: caches hold none of it"}};
    if (engine == Engine::sm) params.push_back(sm_param());
    return Benchmark{"latency",     summary,  "nvbandwidth host_device_latency_sm and device_to_device_latency_sm",
                     engine,        src,      dst,
                     Relation::any, memories, std::move(params),
                     build_latency, sized};
  };
  return of_role(Role::latency, {
                                    row("pointer chase by a GPU thread through host memory", Engine::sm, numa, gpu,
                                        {{pinned, device}, {registered, device}}),
                                    row("pointer chase by a GPU thread through GPU memory, its own or a peer's",
                                        Engine::sm, gpu, gpu, {{device, device}}),
                                    row("pointer chase by a CPU thread through host memory", Engine::cpu, numa, numa,
                                        {{pageable, pageable}}),
                                    row("pointer chase by a CPU thread through GPU memory that CPUs can load",
                                        Engine::cpu, gpu, numa, {{device, pageable}}),
                                });
}

}  // namespace linkscope
