#include "benchmarks/managed.hpp"

namespace linkscope {

Program managed_program(const Case& c) {
  Program program;
  program.peer = c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu && c.param("peer", "on") == "on";
  return program;
}

Param managed_peer_param() { return {"peer", {"on", "off"}, "peer access between the two, or through the memory of the host"}; }

void add_migration(Program& program, const Case& c, const Place& home, const Place& to, const Place& by, Content content, u64 bytes, Step step, u32 iterations) {
  Program one;
  one.regions.push_back({home, MemKind::managed, bytes, content});
  Actor actor;
  actor.place = by;
  if (by.kind == PlaceKind::numa) {
    actor.kind = ActorKind::cpu_thread;
    actor.clock = Clock::host;
  }
  for (const Place& end : {home, to})
    if (end.kind == PlaceKind::numa) actor.cpu = end;
  actor.once.push_back(Prefetch{{0, 0, bytes, bytes, 1}, home});
  actor.loop.push_back(std::move(step));
  one.actors.push_back(std::move(actor));
  one.flows.push_back({0, home, to, MemKind::managed, MemKind::managed, c.bytes});
  one.peer = program.peer;
  one.most_iterations = iterations;
  program = program.actors.empty() ? one : together({program, one});
}

}  // namespace linkscope
