// Comm|Scope 4.1 (CS-12): one CPU thread copies between pageable and pinned memory, the hidden first stage of a
// pageable transfer, for every pair of NUMA nodes.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_host_to_host(const Case& c) {
  Program program = empty_program(c);
  Actor thread{c.param("initiator", "src") == "src" ? c.src : c.dst, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, std::move(thread));
  return program;
}

}  // namespace

const Benchmark host_to_host{
    "h2h",
    "one CPU thread copies between pageable and pinned host memory",
    "Comm|Scope 4.1 (CS-12)",
    Engine::cpu,
    PlaceKind::numa,
    PlaceKind::numa,
    Relation::any,
    {{MemKind::pageable, MemKind::pinned}, {MemKind::pinned, MemKind::pageable}},
    {mode_param(), {"initiator", {"src", "dst"}, "the NUMA node on which the copying thread runs"}, cache_param()},
    build_host_to_host,
    true,
    Taken::unasked};

}  // namespace linkscope
