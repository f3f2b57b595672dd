// `read_file`: a CPU thread reads a file into pinned memory, as a competitor for the memory and links of a node.
// `file_direct`: cuFile moves a file between a disk and a GPU without a copy in host memory.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build(const Case& c) {
  Program program = empty_program(c);
  Actor thread{c.dst, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, std::move(thread));
  return program;
}

/// A CPU thread near the GPU calls cuFile.
Program build_direct(const Case& c) {
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  Place node = parse_place(c.param("node", "numa:0"));
  node.host = c.src.host;
  Actor thread{node, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, std::move(thread));
  return program;
}

Benchmark direct(std::string_view summary, PlaceKind src, PlaceKind dst, std::pair<MemKind, MemKind> memories) {
  return {
      "file_direct",
      summary,
      "NVIDIA cuFile (GPUDirect Storage)",
      Engine::file,
      src,
      dst,
      Relation::any,
      {std::move(memories)},
      {mode_param(), {"node", {"numa:0", "numa:1", "numa:2", "numa:3"}, "NUMA node of the thread that calls cuFile"}},
      build_direct};
}

}  // namespace

std::vector<Benchmark> file_reads() {
  return {direct("cuFile reads a file into a GPU's memory, past memory of the host", PlaceKind::disk, PlaceKind::gpu,
                 {MemKind::file, MemKind::device}),
          direct("cuFile writes a GPU's memory to a file, past memory of the host", PlaceKind::gpu, PlaceKind::disk,
                 {MemKind::device, MemKind::file}),
          {"read_file",
           "one CPU thread reads a file into host memory",
           "Spafford 5",
           Engine::file,
           PlaceKind::disk,
           PlaceKind::numa,
           Relation::any,
           {{MemKind::file, MemKind::pinned}},
           {file_cache_param(), depth_param()},
           build}};
}

}  // namespace linkscope
