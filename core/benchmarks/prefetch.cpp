// Comm|Scope 3.5 (CS-10): prefetched unified memory: managed pages move in bulk, by a call on a stream. Since CUDA 13
// one call takes many ranges, and may discard their contents.
#include "benchmarks/managed.hpp"

namespace linkscope {
namespace {

void add_prefetch(Program& program, const Case& c, const Place& home, const Place& to) {
  const Place& stream = to.kind == PlaceKind::gpu ? to : home;
  const auto ranges = c.param("ranges", "one"), discard = c.param("discard", "no");
  const u32 count = ranges == "one" ? 0 : static_cast<u32>(std::stoul(ranges));
  using enum Prefetch::Discard;
  // Only the batch call discards and prefetches together, so one range is a batch of one.
  Prefetch step{{0, 0, c.bytes, c.bytes, 1}, to, count, discard == "no" ? no : discard == "before" ? before : with};
  if (step.discard == with && step.ranges == 0) step.ranges = 1;
  add_migration(program, c, {.home = home, .to = to, .by = stream, .bytes = c.bytes}, step);
}

Program build_prefetch(const Case& c) { return migrations(c, add_prefetch); }

}  // namespace

std::vector<Benchmark> prefetches() {
  using enum PlaceKind;
  constexpr bool default_in_id = false;
  const auto row = [](const char* summary, PlaceKind src, PlaceKind dst, Relation relation, std::vector<Param> params) {
    params.push_back({"ranges",
                      {"one", "1", "8", "64", "512"},
                      "one: the call for one range; a number: that many ranges of at least 4 KiB, all in one call",
                      default_in_id});
    params.push_back({"discard",
                      {"no", "before", "with"},
                      "the pages' contents are discarded: by a call before the prefetch, or by the same call",
                      default_in_id});
    const auto& memories = relation == Relation::any ? moving_memory : managed_memory;
    return Benchmark{"prefetch", summary,  "Comm|Scope 3.5 (CS-10)", Engine::prefetch, src, dst,
                     relation,   memories, std::move(params),        build_prefetch};
  };
  return of_role(
      Role::migration,
      {
          row("prefetch of managed pages from the host to a GPU", numa, gpu, Relation::any, {bidirectional_param()}),
          row("prefetch of managed pages from a GPU to the host", gpu, numa, Relation::any, {}),
          row("prefetch of managed pages between two GPUs", gpu, gpu, Relation::different,
              {managed_peer_param(), bidirectional_param()}),
      });
}

}  // namespace linkscope
