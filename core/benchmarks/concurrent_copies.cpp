// docs/method/shared-links.md: concurrent copies by copy engine on several paths, each on its own stream. The rate of
// each path beside the others shows shared links. Copies between GPUs have peer access.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using Ends = std::pair<Place, Place>;

std::string text(const Ends& path) { return to_string(path.first) + "->" + to_string(path.second); }

MemKind memory_at(const Place& place) { return place.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned; }

/// The path of the case, then those of `with`. Throws Error{usage} for a path that is not one of copies, or is
/// repeated.
std::vector<Ends> paths_of(const Case& c) {
  std::vector<Ends> found{{c.src, c.dst}};
  const auto with = c.param("with", "none");
  if (with == "none") return found;
  for (const auto& path : parse_paths(with)) {
    const auto is = [&](PlaceKind kind) { return (path.first.kind == kind) + (path.second.kind == kind); };
    const bool all = path.first.index == all_places || path.second.index == all_places;
    if (all || is(PlaceKind::gpu) == 0 || is(PlaceKind::gpu) + is(PlaceKind::numa) != 2 || path.first == path.second)
      misfit(c, "with=" + text(path) +
                    " is not a valid path; name a GPU and a NUMA node, or two GPUs, as in "
                    "with=numa:0->gpu:1");
    if (std::find(found.begin(), found.end(), path) != found.end())
      misfit(c, "the path " + text(path) + " is named twice; name each path once");
    found.push_back(path);
  }
  return found;
}

Program build_concurrent_copies(const Case& c) {
  Program program = empty_program(c);
  for (const auto& [src, dst] : paths_of(c)) {
    Case one = c;
    one.src = src;
    one.dst = dst;
    program.peer = program.peer || (src.kind == PlaceKind::gpu && dst.kind == PlaceKind::gpu);
    add_copy(program, one, {src, dst, memory_at(src), memory_at(dst)}, stream_of(one));
  }
  return program;
}

}  // namespace

std::vector<Benchmark> concurrent_copies() {
  using enum PlaceKind;
  using enum MemKind;
  constexpr bool default_in_id = false, paths = true;
  const Param with{"with", {"none"}, "the other flows, as in numa:0->gpu:1,gpu:2->numa:0", default_in_id, paths};
  const auto row = [&](PlaceKind src, PlaceKind dst, Relation relation, MemKind src_memory, MemKind dst_memory) {
    return Benchmark{"concurrent", "concurrent flows: copies on several paths",
                     "linkscope",  Engine::ce,
                     src,          dst,
                     relation,     {{src_memory, dst_memory}},
                     {with},       build_concurrent_copies};
  };
  return {row(numa, gpu, Relation::any, pinned, device), row(gpu, numa, Relation::any, device, pinned),
          row(gpu, gpu, Relation::different, device, device)};
}

}  // namespace linkscope
