// `read_file`: a CPU thread reads a file into pinned memory, as a competitor for the memory and links of a node.
// `file_direct`: cuFile moves a file between a disk and a GPU without a copy in host memory.
// `file_mapped`: a GPU copies a file from the page cache, window by window, as linkscope.read_file does with knob `mapped`.
#include "benchmarks/chunks.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_file_reads(const Case& c) {
  Program program = empty_program(c);
  Actor thread{c.dst, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, std::move(thread));
  return program;
}

/// A CPU thread near the GPU makes the calls.
Program build_called(const Case& c) {
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  Place node = parse_place(c.param("node", "numa:0"));
  node.host = c.src.host;
  Actor thread{node, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, std::move(thread));
  return program;
}

Program build_mapped(const Case& c) {
  const auto threads = c.number("threads", "1");
  Case cached = c;
  cached.params["cache"] = "hot";
  Program program = build_called(cached);
  std::get<Move>(program.actors[0].loop[0]).shape = {static_cast<u32>(c.bytes / chunk_bytes(c)), threads};
  return program;
}

Param node_param(std::string_view says) { return {"node", {"numa:0", "numa:1", "numa:2", "numa:3"}, says}; }

Benchmark direct(std::string_view summary, PlaceKind src, PlaceKind dst, std::pair<MemKind, MemKind> memories) {
  return {"file_direct",
          summary,
          "NVIDIA cuFile (GPUDirect Storage)",
          Engine::file,
          src,
          dst,
          Relation::any,
          {std::move(memories)},
          {mode_param(), node_param("NUMA node of the thread that calls cuFile")},
          build_called};
}

Benchmark mapped() {
  return {"file_mapped",
          "a GPU copies a file from the page cache, whose pages CPU threads map and register window by window",
          "Linux mmap, CUDA cuMemHostRegister",
          Engine::file,
          PlaceKind::disk,
          PlaceKind::gpu,
          Relation::any,
          {{MemKind::file, MemKind::device}},
          {mode_param(),
           chunk_param("bytes of a window, which is mapped, registered, copied and released at once; whole: the file"),
           {"threads", {"1", "2", "4", "8", "16"}, "CPU threads that take the windows in turn"},
           node_param("NUMA node of these threads")},
          build_mapped};
}

}  // namespace

std::vector<Benchmark> file_reads() {
  return {direct("cuFile reads a file into a GPU's memory, past memory of the host", PlaceKind::disk, PlaceKind::gpu,
                 {MemKind::file, MemKind::device}),
          direct("cuFile writes a GPU's memory to a file, past memory of the host", PlaceKind::gpu, PlaceKind::disk,
                 {MemKind::device, MemKind::file}),
          mapped(),
          {"read_file",
           "one CPU thread reads a file into host memory",
           "Spafford 5",
           Engine::file,
           PlaceKind::disk,
           PlaceKind::numa,
           Relation::any,
           {{MemKind::file, MemKind::pinned}},
           {file_cache_param(), depth_param()},
           build_file_reads}};
}

}  // namespace linkscope
