// One copy in parts, each on its own stream, concurrently. If a GPU has several copy engines for that path, its streams
// use them, and the rate beyond one engine shows here (compare `h2d`, `d2h`, `d2d`, `local` by ce).
#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_split_copies(const Case& c) {
  const u64 parts = std::stoull(c.param("streams", "2")), words = c.bytes / 8;
  if (words < parts)
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) + " B is too small for " +
                                      std::to_string(parts) + " parts: each part needs at least 8 B"};
  Program program = empty_program(c);
  program.peer = c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu && c.src != c.dst;
  for (u64 i = 0; i < parts; ++i) {
    Case part = c;
    part.bytes = 8 * (words / parts + (i < words % parts));
    part.footprint_bytes = c.footprint_bytes / parts;
    add_copy(program, part, {c.src, c.dst, c.src_memory, c.dst_memory}, stream_of(c));
  }
  return program;
}

}  // namespace

std::vector<Benchmark> split_copies() {
  using enum PlaceKind;
  using enum MemKind;
  const auto row = [](const char* summary, PlaceKind src, PlaceKind dst, MemKind src_memory, MemKind dst_memory) {
    std::vector<Param> params{{"streams", {"2", "4"}, "number of parts, each on its own stream"}};
    if (src == gpu && dst == gpu) params.push_back(initiator_param());
    return Benchmark{"split",
                     summary,
                     "CUDA: asynchronous engines of a GPU",
                     Engine::ce,
                     src,
                     dst,
                     Relation::any,
                     {{src_memory, dst_memory}},
                     std::move(params),
                     build_split_copies};
  };
  return {
      row("one copy from host memory to a GPU, split over several streams", numa, gpu, pinned, device),
      row("one copy from a GPU to host memory, split over several streams", gpu, numa, device, pinned),
      row("one copy between two GPUs, or within one, split over several streams", gpu, gpu, device, device),
  };
}

}  // namespace linkscope
