// A CPU thread reads a file into pinned memory: the disk's share of what competes for a node.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build(const Case& c) {
  Program program = empty_program(c);
  Actor thread{c.dst, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, std::move(thread));
  return program;
}

}  // namespace

std::vector<Benchmark> file_reads() {
  return {{"read_file",
           "one CPU thread reads a file into host memory",
           "Spafford 5",
           Engine::file,
           PlaceKind::disk,
           PlaceKind::numa,
           Relation::any,
           {{MemKind::file, MemKind::pinned}},
           {file_cache_param()},
           build}};
}

}  // namespace linkscope
