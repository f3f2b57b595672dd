#include "benchmarks/managed.hpp"

namespace linkscope {

Program managed_program(const Case& c) {
  Program program;
  program.peer = c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu && c.param("peer", "on") == "on";
  return program;
}

Param managed_peer_param() {
  return {"peer", {"on", "off"}, "on: peer access between the GPUs; off: through host memory"};
}

Param advice_param() {
  constexpr bool default_in_id = false;
  return {"advice",
          {"none", "read_mostly", "preferred_src", "preferred_dst", "accessed_by"},
          "cuMemAdvise for the pages: read mostly, preferred location source or destination, or accessed by "
          "the destination",
          default_in_id};
}

namespace {

std::optional<Advice> advice_of(const std::string& text, const Place& home, const Place& to) {
  using enum Advice::Kind;
  if (text == "none") return {};
  if (text == "read_mostly") return Advice{read_mostly, {}};
  if (text == "accessed_by") return Advice{accessed_by, to};
  return Advice{preferred, text == "preferred_src" ? home : to};
}

}  // namespace

void add_migration(Program& program, const Case& c, const Migration& pages, Step step) {
  const auto& [home, to, by, bytes, content, iterations] = pages;
  Program one;
  one.regions.push_back({home, c.src_memory, bytes, content});
  one.regions.back().advice = advice_of(c.param("advice", "none"), home, to);
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
  one.flows.push_back({0, home, to, c.src_memory, c.dst_memory, c.bytes});
  one.peer = program.peer;
  one.most_iterations = iterations;
  program = program.actors.empty() ? one : together({program, one});
}

}  // namespace linkscope
