#include "benchmarks/copies.hpp"

#include <algorithm>

namespace linkscope {

u64 slice_stride(u64 bytes) {
  constexpr u64 line = 256;  // no two slices share a cache line or a GPU sector
  return (bytes + line - 1) / line * line;
}

u32 slice_count(u64 bytes, u64 footprint_bytes) {
  constexpr u64 most = 512;  // beyond this small slices stay apart by flushing, not by rotation
  return static_cast<u32>(std::clamp<u64>((footprint_bytes + bytes - 1) / bytes, 1, most));
}

Param mode_param() { return {"mode", {"batched", "single"}, "cost of one copy among many, or of one alone"}; }

Param after_param() {
  return {"after", {"kernel", "wait"}, "what the stream did before: a kernel (compute, then copy) or nothing but waiting"};
}

Program empty_program(const Case& c) {
  Program program;
  program.held_by = c.param("after", "kernel") == "kernel" ? HeldBy::kernel : HeldBy::wait;
  return program;
}

void add_copy(Program& program, const Case& c, const Copy& copy, Actor actor) {
  const u64 stride = slice_stride(c.bytes);
  const u32 slices = slice_count(c.bytes, c.footprint_bytes);
  const auto region = static_cast<u32>(program.regions.size());
  program.regions.push_back({copy.src, copy.src_memory, stride * slices, Content::pattern});
  program.regions.push_back({copy.dst, copy.dst_memory, stride * slices, Content::poison});
  const Span from{region, 0, c.bytes, stride, slices};
  const Span to{region + 1, 0, c.bytes, stride, slices};
  Shape shape;
  if (c.engine == Engine::sm || c.engine == Engine::tma) {
    const auto blocks = c.param("blocks", "all");
    shape.blocks = blocks == "all" ? 0 : static_cast<u32>(std::stoul(blocks));
    shape.threads = static_cast<u32>(std::stoul(c.param("threads", "32")));
  }
  actor.loop.push_back(Move{from, to, c.engine, c.param("call", "memcpy") == "peer", shape});
  program.flows.push_back({static_cast<u32>(program.actors.size()), copy.src, copy.dst, copy.src_memory, copy.dst_memory, c.bytes});
  program.actors.push_back(std::move(actor));
}

}  // namespace linkscope
