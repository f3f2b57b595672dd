// nvbandwidth host_to_device_bidirectional_memcpy_sm and host_to_all_bidirectional_memcpy_sm: one kernel copies from
// and to host memory concurrently, even warps in one direction and odd warps in the other.
#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

/// Thread blocks; by default one per piece and thread. The GPU starts blocks in order, so that one stretch of memory is
/// active at a time: 42.2 GB/s per direction on H200, against 41.3 with one block per SM.
Param pieces_param() {
  auto blocks = blocks_param();
  blocks.values.insert(blocks.values.begin(), "pieces");
  blocks.help = "thread blocks; pieces: enough that each thread copies 16 bytes; sms: one on each SM";
  return blocks;
}

Shape shape_of(const Case& c) {
  if (c.param("blocks", "pieces") != "pieces") return kernel_shape(c);
  const auto threads = c.number("threads", "512");
  const u64 each = u64{threads} / 2 * 16;  // bytes per direction
  return {static_cast<u32>((c.bytes + each - 1) / each), threads};
}

/// A kernel of the GPU `dst` whose warps copy from and to the host concurrently: one actor, two flows.
void add_exchange(Program& program, const Case& c, const Place& host, const Place& gpu) {
  const u64 stride = slice_stride(c.bytes);
  const u32 slices = slice_count(c.bytes, c.footprint_bytes, c.engine);
  const auto region = static_cast<u32>(program.regions.size());
  const auto span = [&](u32 number) { return Span{region + number, 0, c.bytes, stride, slices}; };
  const auto add = [&](const Place& at, MemKind kind, Content content) {
    program.regions.push_back({at, kind, stride * slices, content});
  };
  add(host, c.src_memory, Content::pattern);
  add(gpu, c.dst_memory, Content::poison);
  add(gpu, c.dst_memory, Content::pattern);
  add(host, c.src_memory, Content::poison);
  using enum Access::Dir;
  const auto actor = static_cast<u32>(program.actors.size());
  Actor stream;
  stream.place = gpu;
  stream.cpu = host;
  stream.loop.push_back(Kernel{
      KernelId::exchange, shape_of(c), 0, {{span(0), read}, {span(1), write}, {span(2), read}, {span(3), write}}});
  program.actors.push_back(std::move(stream));
  program.flows.push_back({actor, host, gpu, c.src_memory, c.dst_memory, c.bytes});
  program.flows.push_back({actor, gpu, host, c.dst_memory, c.src_memory, c.bytes});
}

Program build_exchange(const Case& c) {
  Program program;
  if (c.dst.index != all_places) add_exchange(program, c, c.src, c.dst);
  else if (c.others.empty()) throw Error{ErrorKind::usage, c.benchmark + ": the GPUs of gpu:all are not given"};
  for (const auto& gpu : c.others) add_exchange(program, c, c.src, gpu);
  return program;
}

}  // namespace

std::vector<Benchmark> exchanges() {
  const auto row = [](const char* name, const char* summary, const char* source, Relation relation) {
    return Benchmark{name,
                     summary,
                     source,
                     Engine::sm,
                     PlaceKind::numa,
                     PlaceKind::gpu,
                     relation,
                     {{MemKind::pinned, MemKind::device}},
                     {pieces_param(), threads_param()},
                     build_exchange};
  };
  return {
      row("exchange", "one kernel copies from and to host memory concurrently: even warps read, odd warps write",
          "nvbandwidth host_to_device_bidirectional_memcpy_sm", Relation::any),
      row("exchange_all", "the exchange kernel on every GPU concurrently",
          "nvbandwidth host_to_all_bidirectional_memcpy_sm", Relation::to_all),
  };
}

}  // namespace linkscope
