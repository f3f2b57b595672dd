// Comm|Scope 3.2 (CS-1 to CS-4), Spafford 3.1 (SP-1): explicit copy from host memory bound to a NUMA node to a GPU,
// alone or with the opposite direction on its own stream.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Actor stream(const Place& gpu, const Place& numa) { return {gpu, ActorKind::stream, Clock::event, numa, 0, {}, {}}; }

Program build_host_to_device(const Case& c) {
  Program program = empty_program(c);
  const Place cpu = bound(c, c.src);
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, stream(c.dst, cpu));
  if (c.param("bidirectional", "false") == "true")
    add_copy(program, c, {c.dst, c.src, c.dst_memory, c.src_memory}, stream(c.dst, cpu));
  bind(program, c);
  if (c.param("host_threads", "each") == "one")
    program.held_by = HeldBy::nothing;  // then one thread queues all streams
  return program;
}

/// Copies of pageable memory occupy the host thread that queues them.
Param host_threads_param() {
  constexpr bool default_in_id = false;
  return {
      "host_threads",
      {"each", "one"},
      "who queues copies of pageable memory in both directions: a host thread for each, or one thread for both; with "
      "one, no gate holds the streams",
      default_in_id};
}

}  // namespace

const Benchmark host_to_device{
    "h2d",
    "explicit copy from host memory to a GPU by copy engine",
    "Comm|Scope 3.2 (CS-1 to CS-4), Spafford 3.1 (SP-1), nvbandwidth host_to_device_memcpy_ce",
    Engine::ce,
    PlaceKind::numa,
    PlaceKind::gpu,
    Relation::any,
    {{MemKind::pageable, MemKind::device}, {MemKind::pinned, MemKind::device}, {MemKind::registered, MemKind::device}},
    {mode_param(), after_param(), bidirectional_param(), cache_param(), cpu_param(), binding_param(),
     host_threads_param(), clock_param(), idle_param()},
    build_host_to_device,
    true,
    Taken::unasked};

}  // namespace linkscope
