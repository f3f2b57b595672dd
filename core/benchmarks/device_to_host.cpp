// Comm|Scope 3.2 (CS-1 to CS-4), Spafford 3.1 (SP-1): explicit copy from a GPU to host memory bound to a NUMA node.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_device_to_host(const Case& c) {
  Program program = empty_program(c);
  Actor stream{c.src, ActorKind::stream, Clock::event, bound(c, c.dst), 0, {}, {}};
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, std::move(stream));
  bind(program, c);
  return program;
}

}  // namespace

const Benchmark device_to_host{
    "d2h",
    "explicit copy from a GPU to host memory by copy engine",
    "Comm|Scope 3.2 (CS-1 to CS-4), Spafford 3.1 (SP-1), nvbandwidth device_to_host_memcpy_ce",
    Engine::ce,
    PlaceKind::gpu,
    PlaceKind::numa,
    Relation::any,
    {{MemKind::device, MemKind::pageable}, {MemKind::device, MemKind::pinned}, {MemKind::device, MemKind::registered}},
    {mode_param(), after_param(), cache_param(), cpu_param(), binding_param(), clock_param(), idle_param()},
    build_device_to_host,
    true,
    Taken::unasked};

}  // namespace linkscope
