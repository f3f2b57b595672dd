// What a GPU's threads do to memory besides copying it one way: read it, write it (Comm|Scope 3.4, CS-11, CS-12; nvbandwidth 0.10's
// read-only and write-only kernels), or follow a chain of addresses through it, each load needing the one before (microbench
// 3.2, nvbandwidth host_device_latency_sm and device_to_device_latency_sm). Memory is the GPU's own, a peer's or the host's. And copies both ways by one kernel, as
// nvbandwidth's *_bidirectional_memcpy_sm.
#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

bool peers(const Case& c) { return c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu && c.src != c.dst; }

/// A region, and one actor that runs `kernel` on it.
Program one_sided(const Case& c, const Place& at, MemKind memory, const Place& by, Content content, u64 region_bytes, Kernel kernel) {
  Program program;
  program.peer = peers(c);
  program.regions.push_back({at, memory, region_bytes, content});
  Actor actor;
  actor.place = by;
  if (by.kind == PlaceKind::numa) {
    actor.kind = ActorKind::cpu_thread;
    actor.clock = Clock::host;
  } else if (at.kind == PlaceKind::numa) {
    actor.cpu = at;
  }
  actor.loop.push_back(std::move(kernel));
  program.actors.push_back(std::move(actor));
  program.flows.push_back({0, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes});
  return program;
}

Program stream_through(const Case& c, bool reads) {
  const u64 stride = slice_stride(c.bytes);
  const u32 slices = slice_count(c.bytes, c.footprint_bytes);
  const Span span{0, 0, c.bytes, stride, slices};
  Kernel kernel{reads ? "read" : "write", kernel_shape(c), 0, {{span, reads ? Access::Dir::read : Access::Dir::write}}};
  return reads ? one_sided(c, c.src, c.src_memory, c.dst, Content::pattern, stride * slices, std::move(kernel))
               : one_sided(c, c.dst, c.dst_memory, c.src, Content::poison, stride * slices, std::move(kernel));
}

/// A kernel of the GPU `dst` whose warps copy from and to the host at once: one actor, two flows.
void add_exchange(Program& program, const Case& c, const Place& host, const Place& gpu) {
  const u64 stride = slice_stride(c.bytes);
  const u32 slices = slice_count(c.bytes, c.footprint_bytes);
  const auto region = static_cast<u32>(program.regions.size());
  const auto span = [&](u32 number) { return Span{region + number, 0, c.bytes, stride, slices}; };
  const auto add = [&](const Place& at, MemKind kind, Content content) { program.regions.push_back({at, kind, stride * slices, content}); };
  add(host, c.src_memory, Content::pattern);
  add(gpu, c.dst_memory, Content::poison);
  add(gpu, c.dst_memory, Content::pattern);
  add(host, c.src_memory, Content::poison);
  using enum Access::Dir;
  const auto actor = static_cast<u32>(program.actors.size());
  Actor stream;
  stream.place = gpu;
  stream.cpu = host;
  stream.loop.push_back(Kernel{"exchange", kernel_shape(c), 0, {{span(0), read}, {span(1), write}, {span(2), read}, {span(3), write}}});
  program.actors.push_back(std::move(stream));
  program.flows.push_back({actor, host, gpu, c.src_memory, c.dst_memory, c.bytes});
  program.flows.push_back({actor, gpu, host, c.dst_memory, c.src_memory, c.bytes});
}

Program build_exchange(const Case& c) {
  Program program;
  if (c.dst.index != all_places) add_exchange(program, c, c.src, c.dst);
  else if (c.others.empty()) throw Error{ErrorKind::usage, c.benchmark + ": nobody said which GPUs gpu:all are"};
  for (const auto& gpu : c.others) add_exchange(program, c, c.src, gpu);
  return program;
}

Program build_read(const Case& c) { return stream_through(c, true); }
Program build_write(const Case& c) { return stream_through(c, false); }

Program build_chase(const Case& c) {
  const u64 bytes = c.param("range", "2MiB") == "2MiB" ? u64{2} << 20 : u64{64} << 20;
  Kernel kernel{"chase", {1, 1}, 1, {{{0, 0, bytes, bytes, 1}, Access::Dir::read, Access::Pattern::chase, 8}}};
  Program program = one_sided(c, c.src, c.src_memory, c.dst, Content::chain, bytes, std::move(kernel));
  program.cache = c.param("cache", "cold") == "cold" ? CacheState::cold : CacheState::hot;
  return program;
}

}  // namespace

std::vector<Benchmark> kernel_accesses() {
  using enum PlaceKind;
  using enum MemKind;
  using Memories = std::vector<std::pair<MemKind, MemKind>>;
  const std::vector<Param> shape{blocks_param(), threads_param()};
  const Param range{"range", {"2MiB", "64MiB"}, "how much memory the chain leads through, a line of 256 B a step"};
  const Param cache{"cache", {"cold", "hot"}, "whether caches hold what of the chain they can"};
  const auto* streams = "Comm|Scope 3.4 (CS-11, CS-12), nvbandwidth 0.10 read-only and write-only kernels";
  const auto* chases = "microbench 3.2 (MB-7), nvbandwidth host_device_latency_sm and device_to_device_latency_sm";
  const auto row = [](const char* name, const char* summary, const char* source, Engine engine, PlaceKind src, PlaceKind dst, const Memories& memories,
                      const std::vector<Param>& params, Program (*build)(const Case&)) {
    return Benchmark{name, summary, source, engine, src, dst, Relation::any, memories, params, build, build != build_chase};
  };
  return {
      row("read", "GPU threads read host memory", streams, Engine::sm, numa, gpu, {{pinned, device}, {registered, device}}, shape, build_read),
      row("read", "GPU threads read their GPU's memory or another's", streams, Engine::sm, gpu, gpu, {{device, device}}, shape, build_read),
      row("write", "GPU threads write host memory", streams, Engine::sm, gpu, numa, {{device, pinned}, {device, registered}}, shape, build_write),
      row("write", "GPU threads write their GPU's memory or another's", streams, Engine::sm, gpu, gpu, {{device, device}}, shape, build_write),
      row("latency", "a GPU thread follows a chain through host memory", chases, Engine::sm, numa, gpu, {{pinned, device}, {registered, device}}, {range, cache},
          build_chase),
      row("latency", "a GPU thread follows a chain through its GPU's memory or another's", chases, Engine::sm, gpu, gpu, {{device, device}},
          {range, cache}, build_chase),
      row("latency", "a CPU thread follows a chain through host memory", chases, Engine::cpu, numa, numa, {{pageable, pageable}}, {range, cache}, build_chase),
      row("latency", "a CPU thread follows a chain through a GPU's memory, where it can load from there", chases, Engine::cpu, gpu, numa,
          {{device, pageable}}, {range, cache}, build_chase),
      {"exchange", "one kernel of a GPU copies from and to host memory at once, even warps one way and odd ones the other",
       "nvbandwidth host_to_device_bidirectional_memcpy_sm", Engine::sm, numa, gpu, Relation::any, {{pinned, device}}, shape, build_exchange},
      {"exchange_all", "such a kernel on every GPU at once", "nvbandwidth host_to_all_bidirectional_memcpy_sm", Engine::sm, numa, gpu,
       Relation::to_all, {{pinned, device}}, shape, build_exchange},
  };
}

}  // namespace linkscope
