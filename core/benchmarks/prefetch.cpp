// Comm|Scope 3.5 (CS-10): unified memory prefetched: managed pages go to another place in bulk, by a call on a stream.
#include "benchmarks/managed.hpp"

namespace linkscope {
namespace {

void add_prefetch(Program& program, const Case& c, const Place& home, const Place& to) {
  const Place& stream = to.kind == PlaceKind::gpu ? to : home;
  add_migration(program, c, home, to, stream, Content::pattern, c.bytes, Prefetch{{0, 0, c.bytes, c.bytes, 1}, to}, 1);
}

Program build(const Case& c) { return migrations(c, add_prefetch); }

}  // namespace

std::vector<Benchmark> prefetches() {
  using enum PlaceKind;
  const auto row = [](const char* summary, PlaceKind src, PlaceKind dst, Relation relation, std::vector<Param> params) {
    return Benchmark{"prefetch", summary, "Comm|Scope 3.5 (CS-10)", Engine::prefetch, src, dst, relation, managed_memory, std::move(params), build};
  };
  return {
      row("managed pages are prefetched from the host to a GPU", numa, gpu, Relation::any, {bidirectional_param()}),
      row("managed pages are prefetched from a GPU to the host", gpu, numa, Relation::any, {}),
      row("managed pages are prefetched from a GPU to another", gpu, gpu, Relation::different, {managed_peer_param(), bidirectional_param()}),
  };
}

}  // namespace linkscope
