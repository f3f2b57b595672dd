// Comm|Scope 3.2 (CS-7, CS-8): explicit copy between two GPUs, with or explicitly without peer access, queued on a
// stream of the source or of the destination, unidirectional or bidirectional.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build(const Case& c) {
  const bool by_source = c.param("initiator", "src") == "src";
  const auto stream = [&](const Place& src, const Place& dst) {
    return Actor{by_source ? src : dst, ActorKind::stream, Clock::event, {}, 0, {}, {}};
  };
  Program program = empty_program(c);
  program.peer = c.param("peer", "on") == "on";
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, stream(c.src, c.dst));
  if (c.param("bidirectional", "false") == "true")
    add_copy(program, c, {c.dst, c.src, c.dst_memory, c.src_memory}, stream(c.dst, c.src));
  return program;
}

}  // namespace

const Benchmark device_to_device{
    "d2d",
    "explicit copy between two GPUs by copy engine, peer access on or off",
    "Comm|Scope 3.2 (CS-7, CS-8), nvbandwidth device_to_device_memcpy_read_ce and _write_ce",
    Engine::ce,
    PlaceKind::gpu,
    PlaceKind::gpu,
    Relation::different,
    {{MemKind::device, MemKind::device}},
    {mode_param(),
     after_param(),
     {"peer", {"on", "off"}, "on: peer access between the GPUs; off: the driver goes through host memory"},
     {"call", {"memcpy", "peer"}, "cuMemcpyDtoDAsync, or cuMemcpyPeerAsync, which names both contexts"},
     initiator_param(),
     bidirectional_param(),
     clock_param(),
     idle_param()},
    build,
    true,
    Taken::unasked};

}  // namespace linkscope
