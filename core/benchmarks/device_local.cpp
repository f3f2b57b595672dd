// nvbandwidth device_local_copy: explicit copy within one GPU's memory (each byte is read and written there).
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_device_local(const Case& c) {
  Program program = empty_program(c);
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory},
           {c.src, ActorKind::stream, Clock::event, {}, 0, {}, {}});
  return program;
}

}  // namespace

const Benchmark device_local{"local",
                             "explicit copy within one GPU's memory",
                             "nvbandwidth device_local_copy",
                             Engine::ce,
                             PlaceKind::gpu,
                             PlaceKind::gpu,
                             Relation::same,
                             {{MemKind::device, MemKind::device}},
                             {mode_param(), after_param(), clock_param(), idle_param()},
                             build_device_local,
                             true,
                             Taken::unasked};

}  // namespace linkscope
