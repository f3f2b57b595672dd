// Managed memory: what the model cannot do with it, the cost of moving its pages, and their places.
#include "platform/sim/managed.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "program/managed.hpp"

namespace linkscope::sim {

// --- where pages are ------------------------------------------------------------------------------------------------

Pages::Pages(const Lanes& lanes, const Machine& machine) {
  if (!machine.managed) return;
  page_bytes_ = machine.managed->page_bytes;
  for (const auto& lane : lanes.lanes)
    for (const auto* ops : {&lane.once, &lane.loop})
      for (const auto& op : *ops) {
        if (!op.migration) continue;
        const Span& span = op.migration->span;
        const u64 end = span.offset + (span.slices - 1) * span.stride + span.bytes;
        if (at_home_.size() <= span.region) at_home_.resize(span.region + 1);
        auto& region = at_home_[span.region];
        region.resize(std::max<std::size_t>(region.size(), (end + page_bytes_ - 1) / page_bytes_), true);
      }
}

Pages::Range Pages::pages(const Op& op, u32 iteration, u64 chunk) const {
  const Span& span = op.migration->span;
  const u64 slice = span.offset_at(iteration), begin = slice + chunk * op.chunk_bytes;
  const u64 end = std::min(begin + op.chunk_bytes, slice + span.bytes);
  const u64 around = std::max(op.migration->around, page_bytes_);
  u64 first = begin / around * around, last = (end + around - 1) / around * around;
  if (const u64 before = first % op.migration->block; before > 0) {
    const u64 doubled = std::bit_floor(before / around) * around, block = first - before;
    first = block + doubled;
    last = block + std::min(2 * doubled, op.migration->block);
  }
  return {first / page_bytes_, std::min<std::size_t>(last / page_bytes_, at_home_[span.region].size())};
}

u64 Pages::fresh(const Op& op, u32 iteration, u64 chunk, u64 unit) const {
  const auto [begin, end] = pages(op, iteration, chunk);
  const auto& at_home = at_home_[op.migration->span.region];
  const u64 in_unit = std::max<u64>(1, unit / page_bytes_);
  u64 count = 0;
  for (u64 first = begin / in_unit * in_unit; first < end; first += in_unit) {
    bool untouched = true;
    for (u64 page = first; page < std::min<u64>(first + in_unit, at_home.size()); ++page)
      untouched = untouched && at_home[page] != op.migration->home;
    count += untouched;
  }
  return count;
}

u64 Pages::missing(const Op& op, u32 iteration, u64 chunk) const {
  const auto [begin, end] = pages(op, iteration, chunk);
  const auto& at_home = at_home_[op.migration->span.region];
  u64 count = 0;
  for (auto page = begin; page < end; ++page) count += at_home[page] != op.migration->home;
  return count * page_bytes_;
}

void Pages::arrive(const Op& op, u32 iteration, u64 chunk) {
  const auto [begin, end] = pages(op, iteration, chunk);
  auto& at_home = at_home_[op.migration->span.region];
  for (auto page = begin; page < end; ++page) at_home[page] = op.migration->home;
}

// --- what the model cannot do ---------------------------------------------------------------------------------------

namespace {

/// The places to which actors move pages of a region.
std::vector<Place> destinations(const Program& program, u32 region) {
  std::vector<Place> places;
  for (const auto& actor : program.actors)
    for (const auto* steps : {&actor.once, &actor.loop})
      for (const auto& step : *steps) {
        const auto* prefetch = std::get_if<Prefetch>(&step);
        for (const auto& touch : touches(step))
          if (touch.span.region == region) places.push_back(prefetch ? prefetch->to : actor.place);
      }
  return places;
}

}  // namespace

/// The one place besides its home to which the pages of a region move; none: they stay, or there are several.
std::optional<Node> Compiler::away(const Program& program, u32 region) const {
  std::optional<Node> away;
  const Place& home = program.regions[region].at;
  for (const auto& place : destinations(program, region)) {
    if (place == home) continue;
    const auto found = machine_.find(place);
    if (!found || place.kind == PlaceKind::disk || (away && *away != *found)) return {};
    away = found;
  }
  return away;
}

Support Compiler::supports_managed(const Program& program) const {
  if (managed_bytes(program) == 0) return {};
  if (!machine_.managed)
    return Support::no("the model " + machine_.name +
                       " does not say how managed memory moves: its file has no [managed]");
  for (u32 region = 0; region < program.regions.size(); ++region) {
    const auto& managed = program.regions[region];
    if (!pages_move(managed.kind)) continue;
    const auto away_at = away(program, region);
    if (!away_at) return Support::no("the model's managed memory moves between its home and one other place");
    const Node home = node(managed.at);
    const auto other = machine_.is_gpu(*away_at) ? machine_.gpu(*away_at).place : machine_.numa[*away_at].place;
    if (other.host != managed.at.host)
      return Support::no(to_string(managed.at) + " and " + to_string(other) + " are on different hosts");
    if (!machine_.is_gpu(home) && !machine_.is_gpu(*away_at))
      return Support::no("managed memory does not move between NUMA nodes: CPUs reach it where it is");
    if (machine_.is_gpu(home) && machine_.is_gpu(*away_at) && program.peer && !machine_.peer(home, *away_at))
      return Support::no("there is no peer access between " + to_string(managed.at) + " and " + to_string(other) +
                         " on this machine");
    for (const Node end : {home, *away_at})
      if (machine_.is_gpu(end))
        if (auto why = why_no_managed(program, machine_.gpu(end).place, machine_.gpu(end).memory_bytes); !why.empty())
          return Support::no(why);
  }
  return {};
}

Support Compiler::supports(const Program&, const Actor&, const Prefetch& prefetch) const {
  if (!machine_.find(prefetch.to))
    return Support::no("the machine " + machine_.name + " has no " + to_string(prefetch.to));
  return {};
}

Support Compiler::supports_touch(const Program&, const Actor& actor, const Kernel& kernel) const {
  const auto& traits = traits_of(kernel.id);
  const bool all_bytes = actor.kind == ActorKind::stream && traits.all_bytes;
  if (!traits.touches_pages && !all_bytes)
    return Support::no(
        std::string{"the model's managed memory is touched, read and written by a GPU only, not by the kernel '"} +
        traits.name + "'");
  if (all_bytes && !machine_.kernel)
    return Support::no("the model " + machine_.name +
                       " does not say how its GPUs' threads access memory: its file has no [kernel]");
  if (kernel.traffic.size() != 1) return Support::no("the model touches one span at a time");
  if (const auto& access = kernel.traffic.front(); traits.touches_pages && kernel.dependent_steps == 0 &&
                                                   (access.pattern == Access::Pattern::random || access.stride > 0))
    return Support::no("the model's pages are touched in their order, without gaps");
  return {};
}

// --- what moving costs ----------------------------------------------------------------------------------------------

/// Whether the driver moves pages between GPUs without host memory: with peer access, and over NVLink in any case,
/// because the driver makes linked GPUs peers (four H200s without peer access: 118 GB/s by prefetch, where the host
/// would allow 58).
bool Compiler::pages_go_directly(const Program& program, Node from, Node to) const {
  if (program.peer) return true;
  const auto links = path(from, to).links;
  return machine_.peer(from, to) &&
         std::all_of(links.begin(), links.end(), [&](u32 link) { return machine_.links[link].nvlink; });
}

Path Compiler::migration_path(const Program& program, Node from, Node to) const {
  if (!machine_.is_gpu(from) || !machine_.is_gpu(to) || pages_go_directly(program, from, to)) return path(from, to);
  const Node host = machine_.gpu(to).numa;
  Path path = this->path(from, host);
  const Path second = this->path(host, to);
  for (const auto& use : second.uses) {
    const auto same =
        std::find_if(path.uses.begin(), path.uses.end(), [&](const Use& u) { return u.resource == use.resource; });
    if (same == path.uses.end()) path.uses.push_back(use);
    else same->weight += use.weight;
  }
  path.links.insert(path.links.end(), second.links.begin(), second.links.end());
  path.latency += second.latency;
  return path;
}

namespace {

Op moving(const Span& span, bool home, u64 chunk_bytes) {
  Op op;
  op.bytes = span.bytes;
  op.chunk_bytes = chunk_bytes;
  op.chunks = static_cast<u32>((span.bytes + chunk_bytes - 1) / chunk_bytes);
  op.migration = Migration{span, home};
  return op;
}

}  // namespace

/// Whether the advised processor accesses the pages in place: a GPU those of the host and of its peers, a CPU those of
/// a GPU on a machine that allows it.
bool Compiler::mapped(const Program& program, const Actor& actor, const Kernel& kernel) const {
  const auto& region = program.regions[kernel.traffic.front().span.region];
  if (!region.advice || actor.place == region.at) return false;
  const bool on_gpu = region.at.kind == PlaceKind::gpu;
  if (actor.kind == ActorKind::cpu_thread ? !on_gpu || machine_.managed->cpu_reach == 0
                                          : on_gpu && !pages_go_directly(program, node(region.at), node(actor.place)))
    return false;
  return region.advice->kind != Advice::Kind::read_mostly &&
         (region.advice->kind == Advice::Kind::accessed_by) == (region.advice->place == actor.place);
}

/// A GPU's memory that CPU threads access in place.
Op Compiler::accessed_by_cpu(const Program& program, const Actor& actor, const Kernel& kernel) const {
  const Access& access = kernel.traffic.front();
  const Node at = node(program.regions[access.span.region].at), by = node(actor.place);
  Op op;
  op.bytes = op.chunk_bytes = moved_bytes(access);
  Stage stage;
  stage.by = Stage::By::thread;
  stage.server = nobody;
  if (access.dir == Access::Dir::read) add_links(stage.path, at, by);
  else add_links(stage.path, by, at);
  stage.path.uses.push_back({at, 1});
  stage.path.cap = machine_.managed->cpu_reach * cpu_threads(by, kernel);
  op.stages.push_back(std::move(stage));
  return op;
}

u32 Compiler::cpu_threads(Node numa, const Kernel& kernel) const {
  return kernel.shape.threads == all_cpus ? machine_.numa[numa].cpus : std::max(1u, kernel.shape.threads);
}

/// The highest rate of a host's pages to a GPU. The caches of a far node hold what it has just written modified and give
/// it line by line; the rest is in its memory.
double Compiler::host_pages_cap(Node from, Node gpu, u64 bytes) const {
  const auto& costs = *machine_.managed;
  if (costs.modified_far == 0 || from == machine_.gpu(gpu).numa) return costs.to_device;
  double rest = costs.to_device;
  for (const u32 link : path(from, gpu).links) rest = std::min(rest, machine_.links[link].rate);
  const auto all = static_cast<double>(bytes), modified = std::min(all, static_cast<double>(costs.modified_bytes));
  return all / (modified / costs.modified_far + (all - modified) / rest);
}

Op Compiler::touch(const Program& program, const Actor& actor, const Kernel& kernel) const {
  const auto& costs = *machine_.managed;
  const Span& span = kernel.traffic.front().span;
  const bool on_cpu = actor.kind == ActorKind::cpu_thread;
  const u32 threads = on_cpu ? cpu_threads(node(actor.place), kernel) : std::max(1u, kernel.shape.threads);
  if (mapped(program, actor, kernel)) {
    Op op = on_cpu ? accessed_by_cpu(program, actor, kernel) : accessed(program, actor, kernel);
    // Without advice about the accessing processor, the driver maps pages at the first fault, which moves nothing.
    const auto count = [&](u64 unit) { return std::ceil(static_cast<double>(span.bytes) / static_cast<double>(unit)); };
    if (program.regions[span.region].advice->kind != Advice::Kind::preferred) return op;
    op.start = on_cpu ? count(costs.cpu_fault_bytes * threads) * costs.cpu_fault
                      : count(costs.gpu_batch_bytes) * costs.gpu_batch + count(costs.page_bytes) * costs.gpu_page +
                            count(managed_region) * costs.gpu_region + count(managed_block) * costs.gpu_block;
    return op;
  }
  const Node home = node(program.regions[span.region].at), by = node(actor.place);
  const Node from = by == home ? *away(program, span.region) : home;
  // The threads of a GPU fault in batches, those of a CPU separately and side by side.
  const bool dependent = kernel.dependent_steps > 0;
  // Faults of a block are handled one at a time, so only threads in different blocks help each other.
  const u64 at_once = std::min<u64>(threads, (span.bytes + costs.cpu_block_bytes - 1) / costs.cpu_block_bytes);
  Op op = moving(span, by == home, on_cpu ? costs.cpu_block_bytes * at_once : costs.gpu_batch_bytes);
  // A single fault also moves neighbouring pages: on a GPU the whole region, on a CPU, which crosses a block in order,
  // as much as is there of it (Ganguly et al., ISCA 2019, section 3).
  if (dependent) op.migration->around = on_cpu ? costs.cpu_fault_bytes : std::max(managed_region, costs.page_bytes);
  if (dependent && on_cpu) op.migration->block = costs.cpu_block_bytes;
  Stage stage;
  stage.path = migration_path(program, from, by);
  if (on_cpu) {
    stage.by = Stage::By::thread;
    stage.setup = costs.cpu_fault;
    if (!dependent) {
      stage.first_setup = costs.cpu_fault_bytes * at_once;
      stage.byte_setup = costs.cpu_page / static_cast<double>(costs.page_bytes * at_once);
    }
    // Accessing all words of a moved page takes as long as a copy within the node.
    if (kernel.traffic.front().pattern == Access::Pattern::linear)
      stage.byte_setup += 1 / (machine_.numa[by].memcpy_near * threads);
    if (dependent) stage.present = machine_.numa[by].load;
    stage.path.cap = costs.from_device;
  } else {
    stage.by = Stage::By::threads;
    stage.setup = costs.gpu_batch;
    stage.byte_setup = costs.gpu_page / static_cast<double>(costs.page_bytes);
    stage.region_setup = costs.gpu_region;
    stage.block_setup = costs.gpu_block;
    if (dependent && machine_.kernel) stage.present = machine_.kernel->load;
    stage.path.cap = machine_.is_gpu(from) ? costs.peer : host_pages_cap(from, by, span.bytes);
    if (!dependent) op.start = machine_.is_gpu(from) ? costs.peer_launch : costs.launch;
  }
  op.stages.push_back(std::move(stage));
  return op;
}

Op Compiler::op(const Program& program, const Actor&, const Prefetch& prefetch) const {
  const auto& costs = *machine_.managed;
  const Node home = node(program.regions[prefetch.span.region].at), to = node(prefetch.to);
  const Node from = to == home ? *away(program, prefetch.span.region) : home;
  const bool to_gpu = machine_.is_gpu(to);
  const auto direction = !to_gpu ? from_device : machine_.is_gpu(from) ? between_devices : to_device;
  // Each range takes as long as a prefetch of its own, and pieces do not span ranges; a discard is one more call, and
  // leaves nothing to move.
  const u64 piece = (std::min(costs.piece_bytes, ranges_of(prefetch).front().bytes) + costs.page_bytes - 1) /
                    costs.page_bytes * costs.page_bytes;
  Op op = moving(prefetch.span, to == home, piece);
  op.migration->contents = prefetch.discard == Prefetch::Discard::no;
  op.start = costs.prefetch * (static_cast<double>(ranges_of(prefetch).size()) +
                               (prefetch.discard == Prefetch::Discard::before ? 1 : 0));
  Stage stage;
  stage.by = Stage::By::relay;
  stage.gpu = (to_gpu ? to : from) - machine_.first_gpu();
  stage.server = servers_.engine(stage.gpu, direction);
  stage.path = migration_path(program, from, to);
  // The host creates and maps arriving pages one by one: less for a partial piece.
  if (to_gpu) stage.setup = costs.to_device_piece;
  else stage.byte_setup = costs.from_device_piece / static_cast<double>(costs.piece_bytes);
  op.stages.push_back(std::move(stage));
  return op;
}

}  // namespace linkscope::sim
