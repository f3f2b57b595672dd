#include "platform/sim/lanes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace linkscope::sim {
namespace {

void add_use(Path& path, u32 resource, double weight = 1) {
  for (auto& use : path.uses)
    if (use.resource == resource) {
      use.weight += weight;
      return;
    }
  path.uses.push_back({resource, weight});
}

// Copies of pageable memory to a GPU up to this size carry their bytes in the command and end after the call has
// returned (NVIDIA, CUDA Driver API, "API synchronization behavior").
constexpr u64 small_pageable = 64 << 10;
// Bytes of a part of a copy. The parts of a copy proceed concurrently.
constexpr double part = 4 << 10;
// The fraction of the last-level cache from which memcpy writes past the caches (glibc, x86_non_temporal_threshold).
constexpr double streamed_part = 0.75;

/// The actor that makes a move on another GPU.
Actor helper_of(const Actor& actor, const Place& place) {
  return {place, actor.kind, actor.clock, actor.cpu, actor.process, {}, {}};
}

u32 processes(const Program& program) {
  u32 count = 1;
  for (const auto& actor : program.actors) count = std::max(count, actor.process + 1);
  return count;
}

}  // namespace

Servers::Servers(const Machine& machine) {
  const auto add = [&](u32 count) {
    counts_.push_back(count);
    return static_cast<u32>(counts_.size() - 1);
  };
  for (const auto& gpu : machine.gpus) {
    // One engine does everything in turn; with two, each direction has its own; with three or more, copies to other
    // GPUs use the rest.
    const u32 in = add(1);
    const u32 out = gpu.copy_engines > 1 ? add(1) : in;
    const u32 peer = gpu.copy_engines > 2 ? add(gpu.copy_engines - 2) : out;
    engines_.insert(engines_.end(), {in, out, peer, peer});
  }
  by_caller_ = machine.pageable_by_caller;
  of_driver_ = {1, machine.pageable.slots, machine.pageable.slots, machine.staged_peer.slots, 1};
}

std::vector<u32> Servers::counts(u32 processes) const {
  auto all = counts_;
  for (u32 process = 0; process < processes; ++process) all.insert(all.end(), of_driver_.begin(), of_driver_.end());
  return all;
}

std::vector<u32> Lanes::shared_gpus() const {
  std::map<u32, std::set<u32>> users;
  for (const auto& lane : lanes)
    for (const auto* ops : {&lane.once, &lane.loop})
      for (const auto& op : *ops)
        for (const auto& stage : op.stages)
          if (stage.gpu != nobody) users[stage.gpu].insert(lane.process);
  std::vector<u32> shared;
  for (const auto& [gpu, processes] : users)
    if (processes.size() > 1) shared.push_back(gpu);
  return shared;
}

// Resources, in order: memories of NUMA nodes and GPUs (by node), directed links, shares, page walks of GPUs (walks per
// second), L2 caches of GPUs.
std::vector<double> Compiler::capacities() const {
  std::vector<double> all;
  for (const auto& numa : machine_.numa) all.push_back(numa.dram);
  for (const auto& gpu : machine_.gpus) all.push_back(gpu.memory);
  for (const auto& link : machine_.links) all.push_back(link.rate);
  for (const auto& share : machine_.shares) all.push_back(share.rate);
  const double walk = machine_.kernel ? machine_.kernel->host_walk : 0;
  all.insert(all.end(), machine_.gpus.size(), walk > 0 ? 1 / walk : never);
  for (const auto& gpu : machine_.gpus) all.push_back(gpu.l2 > 0 ? gpu.l2 : never);
  return all;
}

u32 Compiler::walks(Node gpu) const {
  return link_resource(0) + static_cast<u32>(machine_.links.size() + machine_.shares.size()) + gpu -
         machine_.first_gpu();
}

Lanes Compiler::compile(const Program& program) const {
  Lanes all;
  all.processes = processes(program);
  const auto& costs = machine_.costs;
  for (const auto& actor : program.actors) {
    Lane lane;
    const auto add = [&](const std::vector<Step>& steps, std::vector<Op>& ops) {
      for (const auto& step : steps) {
        const auto* move = std::get_if<Move>(&step);
        const Place& place = move && move->by ? *move->by : actor.place;
        if (move && move->by) ops.push_back(op(program, helper_of(actor, place), *move));
        else if (move) ops.push_back(op(program, actor, *move));
        else if (const auto* prefetch = std::get_if<Prefetch>(&step)) ops.push_back(op(program, actor, *prefetch));
        else if (const auto* call = std::get_if<Call>(&step)) ops.push_back(op(program, actor, *call));
        else if (const auto* set = std::get_if<Set>(&step)) ops.push_back(set_word(program, actor, *set, all));
        else if (const auto* wait = std::get_if<Wait>(&step)) ops.push_back(wait_for_word(program, actor, *wait, all));
        else ops.push_back(op(program, actor, std::get<Kernel>(step)));
        if (place != actor.place) {
          ops.back().elsewhere = true;
          ops.back().start += 2 * costs.stream_wait.value_or(0);  // in both directions
        }
        queue(step, ops.back());
        ops.back().id = all.tracks;
        all.tracks += std::max<u32>(1, static_cast<u32>(ops.back().moves.size()));
        for (auto& stage : ops.back().stages) {
          stage.counter = all.stages++;
          const bool on_cpu = stage.by == Stage::By::thread || stage.by == Stage::By::call;
          if (!on_cpu && stage.gpu == nobody) stage.gpu = node(place) - machine_.first_gpu();
        }
      }
    };
    lane.process = actor.process;
    add(actor.once, lane.once);
    add(actor.loop, lane.loop);
    lane.waits = std::any_of(lane.loop.begin(), lane.loop.end(), [](const Op& o) { return o.waits; });
    lane.held = program.held_by != HeldBy::nothing;
    // A loop of words is one launch.
    const bool by_calls =
        !lane.waits && std::none_of(lane.loop.begin(), lane.loop.end(), [](const Op& o) { return o.flag.has_value(); });
    lane.by_event = actor.kind == ActorKind::stream && actor.clock == Clock::event && !(lane.waits && lane.held);
    if (lane.by_event) {
      lane.closing = costs.event;
      lane.after_kernel = program.held_by == HeldBy::kernel;
      lane.queues = !lane.held && by_calls;
    } else if (actor.kind == ActorKind::stream) {
      lane.closing = costs.sync + costs.host_stamp;
      lane.queues = by_calls;
    } else {
      lane.closing = costs.host_stamp;
    }
    // Calls overlap with the copy before only if nothing of another kind stands between them.
    if (lane.loop.size() > 1)
      for (auto& o : lane.loop) o.overlaps = false;
    wake(program, actor, lane);
    for (const auto& o : lane.loop)
      for (const auto& stage : o.stages) {
        for (const u32 link : stage.path.links)
          lane.route += (lane.route.empty() ? "" : ", ") + machine_.links[link].name;
      }
    if (lane.route.empty()) lane.route = "within " + to_string(actor.place);
    all.lanes.push_back(std::move(lane));
  }
  return all;
}

Op Compiler::op(const Program& program, const Actor& actor, const Move& move) const {
  const auto& source = program.regions[move.from.region];
  const auto& target = program.regions[move.to.region];
  if (move.engine == Engine::sm || move.engine == Engine::tma) return copy_by_sm(program, actor, move);
  const Node from = node(source.at), to = node(target.at), host = host_of(actor);
  Op op;
  op.bytes = op.chunk_bytes = move.from.bytes;
  op.moves = {move};

  const auto through_ring = [&](const Ring& ring, u32 slots) {
    op.chunk_bytes = std::min(ring.chunk_bytes, op.bytes);
    op.chunks = static_cast<u32>((op.bytes + op.chunk_bytes - 1) / op.chunk_bytes);
    op.ring = slots;
  };
  const auto pageable_memcpy = [&](Direction direction, Node a, Node b) {  // the thread also queues each chunk's DMA
    const double rate = direction == to_device && op.bytes <= small_pageable ? machine_.small_pageable_rate
                                                                             : machine_.pageable_rate[direction];
    op.waits = true;
    op.call = machine_.pageable_call[direction];
    return Stage{.by = Stage::By::thread,
                 .server = servers_.copying_thread(actor.process),
                 .path = memcpy_path(program, host, a, b, rate),
                 .setup = machine_.costs.call};
  };

  if (move.engine == Engine::cpu) {
    op.stages.push_back({.by = Stage::By::thread,
                         .path = memcpy_path(program, host, from, to, memcpy_rate(host, op.bytes)),
                         .setup = machine_.costs.cpu_copy});
    auto& cap = op.stages[0].path.cap;
    cap = std::min({cap, cpu_cap(source, false), cpu_cap(target, true)});
    // In a row of copies the first loads of each overlap with the bytes of those before.
    op.lead = std::max(0.0, first_load(program, host, from) - static_cast<double>(op.bytes) / cap);
  } else if (from == to) {
    op.stages.push_back(engine_stage(from, within_device, from, to));
    op.stages[0].by = Stage::By::compute;
    op.stages[0].path.cap = machine_.gpu(from).local_copy;
    op.stages[0].setup += late(within_device, op.bytes);
  } else if (machine_.is_gpu(from) && machine_.is_gpu(to)) {
    if (program.peer) {
      // A copy that the destination queues costs more, but the source's engine does the work: three copies of 8 B that
      // a GPU requests from three others take 13.3 us each, as one alone; three requested from one GPU take 40 us (four
      // H200s).
      op.stages.push_back(engine_stage(machine_.pull.extra > 0 ? from : node(actor.place), between_devices, from, to));
      if (node(actor.place) == to) op.stages[0].setup += pull_setup(op.stages[0].path, op.bytes);
      else if (op.bytes <= machine_.copy.in_command.bytes)
        op.stages[0].setup = machine_.copy.small_peer.value_or(op.stages[0].setup);
    } else {
      // The driver's own ring is on the node of the host thread that drives the stream.
      through_ring(machine_.staged_peer, servers_.staged_peer_ring(actor.process));
      op.stages.push_back(engine_stage(from, from_device, from, host));
      op.stages.push_back(engine_stage(to, to_device, host, to));
      for (auto& stage : op.stages) {
        stage.by = Stage::By::relay;
        stage.setup = machine_.staged_peer_chunk;
        stage.in_command = {};
      }
    }
  } else if (machine_.is_gpu(to)) {
    if (is_pageable(source.kind)) {
      through_ring(machine_.pageable, servers_.pageable_ring(actor.process, to_device));
      op.stages.push_back(pageable_memcpy(to_device, from, host));
      op.stages.push_back(engine_stage(to, to_device, host, to));
      if (machine_.small_pageable_setup)
        op.stages[1].in_command = {small_pageable, *machine_.small_pageable_setup, never};
      op.tail = machine_.pageable_end;
      op.overlaps = true;  // the call returns when the last chunk has left the source
    } else {
      op.stages.push_back(engine_stage(to, to_device, from, to));
    }
  } else {
    if (is_pageable(target.kind)) {
      through_ring(machine_.pageable, servers_.pageable_ring(actor.process, from_device));
      op.stages.push_back(engine_stage(from, from_device, from, host));
      op.stages[0].setup += late(from_device, op.chunk_bytes);
      op.stages.push_back(pageable_memcpy(from_device, host, to));
    } else {
      op.stages.push_back(engine_stage(from, from_device, from, to));
      op.stages[0].setup += late(from_device, op.bytes);
      op.tail = machine_.copy.arrive;
    }
  }
  if (by_copy_engine(move.engine)) in_pieces(move, op);
  if (move.engine == Engine::batch || move.engine == Engine::graph) together(move, op);
  return op;
}

namespace {

// Bytes in flight for a block of 512 threads with 16 B each: Machine::KernelCosts. Contiguous accesses request whole
// lines. Other accesses request a sector each, or less on a link.
constexpr double in_tile = 512 * 4, line = 128;

double bytes_of_access(const Access& access) {
  return static_cast<double>(moved_bytes(access)) / static_cast<double>(access_count(access));
}

bool in_sectors(const Access& access) { return access.stride > sector_bytes; }

double request_bytes(const Access& access) { return in_sectors(access) ? access.unit : line; }

/// Ratio of bytes that the memory moves to requested bytes: whole sectors.
double taken_of_memory(const Access& access) {
  if (access.stride < sector_bytes) return 1;
  const auto whole = [&](u32 unit) { return (access.width + unit - 1) / unit * unit; };
  return static_cast<double>(whole(sector_bytes)) / whole(access.unit);
}

/// Ratio of requests in a tile to those with 16 B per access, at least one: a block issues them one by one.
double requests_in_tile(const Access& access) {
  return std::max(1.0, bytes_of_access(access) / request_bytes(access) / (16 / line));
}

/// Adds one side of a stage's SM accesses: its memory and its path, each with the part that SMs get, and the overhead
/// of small requests.
void add_shared(Path& path, const Path& way, const std::vector<Link>& links, u32 first_link, double besides = 1) {
  for (const auto& use : way.uses) {
    const bool link = use.resource >= first_link && use.resource < first_link + links.size();
    add_use(path, use.resource,
            link ? use.weight * besides / links[use.resource - first_link].kernel_share : use.weight);
  }
  path.links.insert(path.links.end(), way.links.begin(), way.links.end());
}

}  // namespace

/// Adds what the SMs of a GPU read or write, and the latency that the kernel shows.
void Compiler::add_kernel_side(const Program& program, Node gpu, const Access& access, Stage& stage) const {
  const Node at = node(program.regions[access.span.region].at);
  const bool writes = access.dir == Access::Dir::write;
  Path way;
  if (machine_.is_gpu(at) && in_l2(program, at)) add_use(way, l2(at));
  else add_use(way, at, machine_.is_gpu(at) ? 1 / machine_.kernel->memory_share : 1);
  way.uses[0].weight *= taken_of_memory(access);
  if (at != gpu) add_links(way, writes ? gpu : at, writes ? at : gpu);
  for (auto& use : way.uses) use.weight *= sectors(access.span);
  if (const double missing = machine_.is_gpu(at) ? 0 : out_of_reach(program, gpu); missing > 0) {
    // Sequential accesses walk to a page once, however little of it they use; random ones once per access.
    const double each = 1 / bytes_of_access(access), pages = static_cast<double>(access.span.bytes) /
                                                             static_cast<double>(moved_bytes(access)) /
                                                             translated_by_page(program.regions[access.span.region]);
    add_use(way, walks(gpu), missing * (access.pattern == Access::Pattern::random ? each : std::min(pages, each)));
  }
  // A link's part for SMs applies to requests of whole lines.
  const double packet = machine_.kernel->packet, size = request_bytes(access);
  add_shared(stage.path, way, machine_.links, link_resource(0), (size + packet) / size * line / (line + packet));
  // The last read needs a round trip; the last write needs one direction only.
  stage.setup +=
      writes ? way.latency : 2 * way.latency + (machine_.is_gpu(at) ? machine_.kernel->load : machine_.numa[at].load);
}

/// The part of host pages that SMs find untranslated when they cycle over more pages than the GPU's reach: the part
/// that does not fit.
double Compiler::out_of_reach(const Program& program, Node gpu) const {
  const double reach = machine_.kernel->host_reach;
  if (reach == 0) return 0;
  double touched = 0;  // in bytes of ordinary pages
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      for (const auto& touch : touches(step)) {
        const bool by_sm = std::holds_alternative<Kernel>(step) || !by_copy_engine(std::get<Move>(step).engine);
        const auto& region = program.regions[touch.span.region];
        if (node(actor.place) != gpu || !by_sm || machine_.is_gpu(node(region.at))) continue;
        touched += static_cast<double>(touch.span.bytes) * touch.span.slices * machine_.kernel->host_page /
                   translated_by_page(region);
      }
  return touched > reach ? 1 - reach / touched : 0;
}

/// Little's law: the bytes in flight of the GPU's threads over the time of a tile.
double Compiler::kernel_cap(Node gpu, const Shape& shape, double tile, double tile_bytes) const {
  const double sms = machine_.gpu(gpu).sms, most = 4 * sms, blocks = shape.blocks ? shape.blocks : sms;
  const double tiles =
      std::min(most, blocks * (shape.threads > 32 ? shape.threads / 512.0 : 1));  // a TMA copy has as many in flight
  return tiles * tile_bytes / tile;
}

namespace {

/// Rows that are no whole vectors of 16 B are copied by words, with half as many bytes in flight.
double part_of_vector(const Kernel& kernel) {
  const auto whole = [](const Access& access) {
    const auto& rows = access.span.rows;
    return (rows.bytes | rows.pitch | rows.plane_pitch | access.span.offset | access.span.stride) % 16 == 0;
  };
  const bool in_rows = std::any_of(kernel.traffic.begin(), kernel.traffic.end(),
                                   [](const Access& access) { return access.span.rows.bytes > 0; });
  return !in_rows || std::all_of(kernel.traffic.begin(), kernel.traffic.end(), whole) ? 1 : 0.5;
}

}  // namespace

Kernel kernel_of(const Move& move) {
  return {KernelId::exchange, move.shape, 0, {{move.from, Access::Dir::read}, {move.to, Access::Dir::write}}};
}

Op Compiler::copy_by_sm(const Program& program, const Actor& actor, const Move& move) const {
  Op made = accessed(program, actor, kernel_of(move));
  made.moves = {move};
  return made;
}

Op Compiler::op(const Program& program, const Actor& actor, const Kernel& kernel) const {
  if (pages_move(program.regions[kernel.traffic.front().span.region].kind)) return touch(program, actor, kernel);
  if (traits_of(kernel.id).atomic) return atomic(program, actor, kernel);
  if (kernel.dependent_steps > 0) return chase(program, actor, kernel);
  return accessed(program, actor, kernel);
}

/// Memory that SMs access in place.
Op Compiler::accessed(const Program& program, const Actor& actor, const Kernel& kernel) const {
  const Node gpu = node(actor.place);
  Op op;
  op.bytes = op.chunk_bytes = moved_bytes(kernel.traffic.front());
  Stage stage;
  stage.by = Stage::By::threads;
  stage.server = nobody;
  double loads = 0, tile = 0;
  for (const auto& access : kernel.traffic) {
    Stage side;
    add_kernel_side(program, gpu, access, side);
    add_shared(stage.path, side.path, {}, 0);
    const bool reads = access.dir == Access::Dir::read;
    if (reads) loads = std::max(loads, side.setup);
    else stage.setup = std::max(stage.setup, side.setup);
    tile += requests_in_tile(access) * (reads ? machine_.kernel->read_tile : machine_.kernel->write_tile);
  }
  stage.setup += loads + machine_.kernel->launch;
  // Bidirectional: half of the threads each read and write their own tiles.
  const double ways = kernel.traffic.size() == 4 ? 2 : 1;
  // The GPU's own memory system acknowledges stores; a kernel that only writes waits for that.
  const double vector = bytes_of_access(kernel.traffic.front()) * part_of_vector(kernel);
  stage.path.cap =
      kernel_cap(gpu, kernel.shape, tile / ways + (loads > 0 ? loads : machine_.kernel->load), in_tile * vector) / ways;
  op.stages.push_back(std::move(stage));
  for (std::size_t side = 0; traits_of(kernel.id).in_pairs && side < kernel.traffic.size(); side += 2)
    op.moves.push_back({kernel.traffic[side].span, kernel.traffic[side + 1].span, Engine::sm, false, kernel.shape});
  return op;
}

/// One step at a time: both directions of the path, and the memory.
Op Compiler::chase(const Program& program, const Actor& actor, const Kernel& kernel) const {
  const Node at = node(program.regions[kernel.traffic.front().span.region].at), by = node(actor.place);
  Path way;
  if (at != by) add_links(way, at, by);
  Op op;
  op.bytes = op.chunk_bytes = kernel.traffic.front().width;
  Stage stage;
  stage.by = machine_.is_gpu(by) ? Stage::By::threads : Stage::By::thread;
  stage.server = nobody;
  stage.setup = 2 * way.latency + (machine_.is_gpu(at) ? machine_.kernel->load : machine_.numa[at].load);
  if (machine_.is_gpu(by) && !machine_.is_gpu(at))
    stage.setup += out_of_reach(program, by) * machine_.kernel->host_walk;
  stage.path.links = way.links;
  op.stages.push_back(std::move(stage));
  return op;
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
  if (program.cache == CacheState::cold || (program.cache == CacheState::dirty ? node.dirty : node.llc) == 0)
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
  return machine_.copy.late[direction] * std::log2(1 + static_cast<double>(bytes) / part);
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
