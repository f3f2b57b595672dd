// Memory that SMs read and write in place: kernels, copies by SM, and pointer chases.
#include <algorithm>
#include <cmath>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {
namespace {

// Bytes in flight for a block of 512 threads with 16 B each: Machine::KernelCosts. Contiguous accesses request whole
// lines. Other accesses request a sector each, or less on a link.
constexpr double threads_of_tile = 512, in_tile = threads_of_tile * 4, line = 128;
// Bytes of a pair of packed words, and of a cache line of a CPU.
constexpr double bytes_of_pair = 16, cpu_line = 64;

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
        const auto* move = std::get_if<Move>(&step);
        const bool by_sm = !move || !by_copy_engine(move->engine);
        const auto& region = program.regions[touch.span.region];
        if (node(actor.place) != gpu || !by_sm || machine_.is_gpu(node(region.at))) continue;
        touched += static_cast<double>(touch.span.bytes) * touch.span.slices * machine_.kernel->host_page /
                   translated_by_page(region);
      }
  return touched > reach ? 1 - reach / touched : 0;
}

/// Little's law: the bytes in flight of the GPU's threads over the time of a tile.
double Compiler::kernel_cap(const Actor& actor, const Shape& shape, double tile, double tile_bytes) const {
  const double all = machine_.gpu(node(actor.place)).sms, sms = actor.sms ? all / actor.sms->parts : all;
  const double most = 4 * sms, blocks = shape.blocks ? shape.blocks : sms;
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

Kernel as_kernel(const Opaque& library) { return {KernelId::read, {0, 1024}, 0, library.traffic}; }

bool computes(const Opaque& library) { return library.operations > 0 && library.element != "u32"; }

/// Accesses of the GPU's own memory on a machine that does not say more about threads: at the rate of the memory.
Op Compiler::streamed(const Actor& actor, const Opaque& library) const {
  Op made;
  made.bytes = made.chunk_bytes = moved_bytes(library.traffic.front());
  Stage stage;
  stage.by = Stage::By::threads;
  stage.server = nobody;
  stage.setup = machine_.costs.launch;
  for (const auto& access : library.traffic)
    add_use(stage.path, node(actor.place), static_cast<double>(moved_bytes(access)) / static_cast<double>(made.bytes));
  made.stages.push_back(std::move(stage));
  return made;
}

/// The share of a GPU's SMs on which a library finds room. Its blocks need a whole SM, and blocks that stay keep theirs.
double Compiler::free_sms(const Program& program, const Actor& actor) const {
  const double sms = machine_.gpu(node(actor.place)).sms;
  const auto held = std::count_if(program.actors.begin(), program.actors.end(), [&](const Actor& other) {
    return other.kind == ActorKind::gpu_block && other.place == actor.place;
  });
  return std::max(1.0, sms - static_cast<double>(held)) / sms;
}

namespace {

/// Whether a library's kernels keep all SMs of the GPU, so that others wait: not in a green context of a part of them, and
/// not the few blocks of a panel of an LU, which start at once on an urgent stream.
bool keeps_all_sms(const Actor& actor, const Opaque& library) {
  return actor.kind == ActorKind::stream && !actor.sms && !(actor.urgent && library.library_call == "lu_panel");
}

}  // namespace

/// Its accesses are spread over the time that it computes.
Op Compiler::op(const Program& program, const Actor& actor, const Opaque& library) const {
  Op made = machine_.kernel ? accessed(program, actor, as_kernel(library)) : streamed(actor, library);
  made.bytes *= library.times;
  made.chunk_bytes *= library.times;
  if (keeps_all_sms(actor, library)) made.stages[0].server = servers_.all_sms(node(actor.place) - machine_.first_gpu());
  if (computes(library)) {
    const auto& gpu = machine_.gpu(node(actor.place));
    const double share = (actor.sms ? 1.0 / actor.sms->parts : 1) * free_sms(program, actor);
    const double takes = library.operations / (share * gpu.operations.at(library.element) * gpu.reached);
    auto& cap = made.stages[0].path.cap;
    cap = std::min(cap, static_cast<double>(made.bytes) / takes);
  }
  return made;
}

/// A message of packed words: each thread of a block loads 8 bytes, then stores 16, and so on. A load waits for the store
/// before it.
Stage Compiler::packed(const Program& program, const Actor& actor, const Set& set) const {
  Stage loads, stores;
  add_kernel_side(program, node(actor.place), {*set.payload, Access::Dir::read}, loads);
  add_kernel_side(program, node(actor.place), {set.word, Access::Dir::write}, stores);
  for (const auto& use : loads.path.uses) add_use(stores.path, use.resource, use.weight / 2);
  stores.path.cap = actor.threads * bytes_of_pair / loads.setup;
  stores.setup = loads.setup;  // of the first; the word's way follows the last store
  return stores;
}

/// Seconds to read the words of a message that is there: in turn each thread of a block polls a pair of words; a CPU thread
/// loads line by line.
double Compiler::packed_read_time(const Actor& actor, const Span& word, const Flag& flag) const {
  const auto bytes = static_cast<double>(word.bytes);
  if (actor.kind != ActorKind::gpu_block) return std::ceil(bytes / cpu_line) * flag.poll;
  return std::ceil(bytes / bytes_of_pair / actor.threads) * flag.poll;
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
  const bool in_block = actor.kind == ActorKind::gpu_block;
  Op op;
  op.bytes = op.chunk_bytes = moved_bytes(kernel.traffic.front());
  Stage stage;
  stage.by = Stage::By::threads;
  stage.server = nobody;
  double loads = 0, tile = 0;
  for (const auto& access : kernel.traffic) {
    Stage side;
    add_kernel_side(program, gpu, access, side);
    // One byte of the first access stands for as many of the others.
    const double bytes = static_cast<double>(moved_bytes(access)) / static_cast<double>(op.bytes);
    for (auto& use : side.path.uses) use.weight *= bytes;
    add_shared(stage.path, side.path, {}, 0);
    const bool reads = access.dir == Access::Dir::read;
    if (reads) loads = std::max(loads, side.setup);
    else stage.setup = std::max(stage.setup, side.setup);
    tile += bytes * requests_in_tile(access) * (reads ? machine_.kernel->read_tile : machine_.kernel->write_tile);
  }
  stage.setup += loads + (in_block ? 0 : machine_.kernel->launch);
  // Bidirectional: half of the threads each read and write their own tiles.
  const double ways = kernel.traffic.size() == 4 ? 2 : 1;
  // The GPU's own memory system acknowledges stores; a kernel that only writes waits for that.
  const double vector = bytes_of_access(kernel.traffic.front()) * part_of_vector(kernel);
  const double time_of_tile = tile / ways + (loads > 0 ? loads : machine_.kernel->load);
  stage.path.cap = in_block ? actor.threads / threads_of_tile * in_tile * vector / time_of_tile
                            : kernel_cap(actor, kernel.shape, time_of_tile, in_tile * vector) / ways;
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

}  // namespace linkscope::sim
