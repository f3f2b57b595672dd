// Comm|Scope 3.2 (CS-7, CS-8): explicit copy between two GPUs, with or explicitly without peer access, queued on a
// stream of the source or of the destination, unidirectional or bidirectional.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_device_to_device(const Case& c) {
  const bool by_source = c.param("initiator", "src") == "src";
  const auto stream = [&](const Place& src, const Place& dst) {
    Actor actor{by_source ? src : dst, ActorKind::stream, Clock::event, {}, 0, {}, {}};
    if (c.param("cpu", "nearest") != "nearest") actor.cpu = bound(c, src);
    return actor;
  };
  Program program = empty_program(c);
  program.peer = c.param("peer", "on") == "on";
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, stream(c.src, c.dst));
  if (c.param("bidirectional", "false") == "true")
    add_copy(program, c, {c.dst, c.src, c.dst_memory, c.src_memory}, stream(c.dst, c.src));
  return program;
}

/// Without peer access the driver stages through memory near the host thread, which no call names.
Param cpu_of_gpus_param() {
  Param cpu = cpu_param();
  cpu.values.front() = "nearest";
  cpu.help = "NUMA node of the host thread that queues the copies; nearest: the node of the GPU whose stream copies";
  return cpu;
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
     cpu_of_gpus_param(),
     clock_param(),
     idle_param()},
    build_device_to_device,
    true,
    Taken::unasked};

}  // namespace linkscope
