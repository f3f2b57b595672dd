// The places of a program in the machine, the paths between them, and the caches and rates on them.
#include <algorithm>
#include <cmath>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {
namespace {

// Bytes of a part of a copy. The parts of a copy proceed concurrently.
constexpr double concurrent_part = 4 << 10;
// The fraction of the last-level cache from which memcpy writes past the caches (glibc, x86_non_temporal_threshold).
constexpr double streamed_part = 0.75;

}  // namespace

void add_use(Path& path, u32 resource, double weight) {
  for (auto& use : path.uses)
    if (use.resource == resource) {
      use.weight += weight;
      return;
    }
  path.uses.push_back({resource, weight});
}

u32 processes(const Program& program) {
  u32 count = 1;
  for (const auto& actor : program.actors) count = std::max(count, actor.process + 1);
  return count;
}

Node Compiler::node(const Place& place) const { return *machine_.find(place); }

Node Compiler::host_of(const Actor& actor) const {
  if (actor.kind == ActorKind::cpu_thread) return node(actor.place);
  return actor.cpu ? node(*actor.cpu) : machine_.gpu(node(actor.place)).numa;
}

void Compiler::add_links(Path& path, Node from, Node to) const {
  const Node links = machine_.first_gpu() + static_cast<u32>(machine_.gpus.size());
  const auto shares = links + static_cast<u32>(machine_.links.size());
  for (const u32 link : *routes_.between(from, to)) {
    path.links.push_back(link);
    path.latency += machine_.links[link].latency;
    add_use(path, links + link);
    for (u32 share = 0; share < machine_.shares.size(); ++share) {
      const auto& members = machine_.shares[share].links;
      if (std::find(members.begin(), members.end(), link) != members.end()) add_use(path, shares + share);
    }
  }
}

Path Compiler::path(Node from, Node to) const {
  Path path;
  add_use(path, from);  // read there,
  add_links(path, from, to);
  add_use(path, to);  // written here; twice within one memory
  return path;
}

/// Whether all of the program's memory on the GPU fits in its L2.
bool Compiler::in_l2(const Program& program, Node gpu) const {
  const auto& node = machine_.gpu(gpu);
  if (program.cache != CacheState::hot || node.l2 == 0) return false;
  u64 wanted = 0;
  for (const auto& region : program.regions)
    if (region.at == node.place) wanted += region.bytes;
  return wanted <= node.l2_bytes;
}

/// Whether all of the program's memory on the node, and its drivers' rings, fit in the last-level cache of its CPUs.
bool Compiler::in_cache(const Program& program, Node numa) const {
  const auto& node = machine_.numa[numa];
  if (program.cache == CacheState::cold || program.cache == CacheState::fresh ||
      (program.cache == CacheState::dirty ? node.dirty : node.llc) == 0)
    return false;
  u64 wanted = machine_.gpus.empty() ? 0 : machine_.pageable.chunk_bytes * machine_.pageable.slots * processes(program);
  for (const auto& region : program.regions)
    if (region.at == node.place) wanted += region.bytes;
  return wanted <= node.llc_bytes;
}

Path Compiler::memcpy_path(const Program& program, Node thread, Node from, Node to, double rate_near) const {
  Path path;
  if (from == thread && to == thread && in_cache(program, thread)) {
    path.cap = program.cache == CacheState::dirty ? machine_.numa[thread].dirty
                                                  : machine_.numa[thread].llc;  // its memory takes no part
    return path;
  }
  add_use(path, from);
  add_links(path, from, thread);
  add_links(path, thread, to);
  add_use(path, to);
  const auto& numa = machine_.numa[thread];
  const bool near = from == thread && to == thread;
  path.cap = near ? rate_near : rate_near * numa.memcpy_far / numa.memcpy_near;
  path.latency = 0;  // loads and stores are always in flight, and the thread's rate includes their cost
  return path;
}

Stage Compiler::engine_stage(Node gpu, Direction direction, Node from, Node to) const {
  const auto engine = [&](Direction way) { return servers_.engine(gpu - machine_.first_gpu(), way); };
  const bool of_host = direction == to_device || direction == from_device;
  const u32 opposite = of_host && engine(to_device) != engine(from_device)
                           ? engine(direction == to_device ? from_device : to_device)
                           : nobody;
  return {.by = Stage::By::engine,
          .server = engine(direction),
          .drains = machine_.copy.by_stream && direction != within_device,
          .path = path(from, to),
          .setup = machine_.copy.setup[direction],
          .in_command = direction == to_device ? machine_.copy.in_command : Inline{},
          .opposite = opposite,
          .gpu = gpu - machine_.first_gpu()};
}

/// Delay of the last part of a copy against the first. The slowest of parallel parts counts, and each doubling of their
/// number delays it.
double Compiler::late(Direction direction, u64 bytes) const {
  return machine_.copy.late[direction] * std::log2(1 + static_cast<double>(bytes) / concurrent_part);
}

/// For one thread with both sides on its node.
double Compiler::memcpy_rate(Node host, u64 bytes) const {
  const auto& numa = machine_.numa[host];
  return static_cast<double>(bytes) < streamed_part * static_cast<double>(numa.llc_bytes) ? numa.memcpy_near
                                                                                          : numa.streamed;
}

/// Delay of a thread's first load if no cache holds the line.
double Compiler::first_load(const Program& program, Node host, Node from) const {
  if (program.cache != CacheState::cold || machine_.numa[from].load == 0) return 0;
  Path way;
  if (from != host) add_links(way, from, host);
  return machine_.numa[from].load + 2 * way.latency;
}

/// The additional time of the hand-over between the destination's stream and its copy; the bytes flow during a part of
/// it.
double Compiler::pull_setup(const Path& path, u64 bytes) const {
  const auto& pull = machine_.pull;
  double rate = never;
  for (const u32 link : path.links) rate = std::min(rate, machine_.links[link].rate);
  return std::max(pull.least, pull.extra - pull.overlap * static_cast<double>(bytes) / rate);
}

}  // namespace linkscope::sim
