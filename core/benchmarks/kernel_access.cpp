// Comm|Scope 3.3 (CS-5, CS-6), nvbandwidth 0.10's read-only and write-only kernels: the threads of a GPU read or write
// memory without copying it, their GPU's own, a peer's or the host's.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program stream_through(const Case& c, bool reads) {
  const u64 stride = slice_stride(c.bytes);
  const u32 slices = slice_count(c.bytes, c.footprint_bytes);
  const Span span{0, 0, c.bytes, stride, slices};
  Kernel kernel{reads ? "read" : "write", kernel_shape(c), 0, {{span, reads ? Access::Dir::read : Access::Dir::write}}};
  return reads ? one_sided(c, c.src, c.src_memory, c.dst, Content::pattern, stride * slices, std::move(kernel))
               : one_sided(c, c.dst, c.dst_memory, c.src, Content::poison, stride * slices, std::move(kernel));
}

Program build_read(const Case& c) { return stream_through(c, true); }
Program build_write(const Case& c) { return stream_through(c, false); }

}  // namespace

std::vector<Benchmark> kernel_accesses() {
  using enum PlaceKind;
  using enum MemKind;
  using Memories = std::vector<std::pair<MemKind, MemKind>>;
  const auto row = [](const char* name, const char* summary, PlaceKind src, PlaceKind dst, const Memories& memories, Program (*build)(const Case&)) {
    const auto* source = "Comm|Scope 3.3 (CS-5, CS-6), nvbandwidth 0.10 read-only and write-only kernels";
    return Benchmark{name, summary, source, Engine::sm, src, dst, Relation::any, memories, {blocks_param(), threads_param()}, build};
  };
  return {
      row("read", "GPU threads read host memory", numa, gpu, {{pinned, device}, {registered, device}}, build_read),
      row("read", "GPU threads read their GPU's memory or another's", gpu, gpu, {{device, device}}, build_read),
      row("write", "GPU threads write host memory", gpu, numa, {{device, pinned}, {device, registered}}, build_write),
      row("write", "GPU threads write their GPU's memory or another's", gpu, gpu, {{device, device}}, build_write),
  };
}

}  // namespace linkscope
