// Copies by copy engines, by the driver through its rings, and by CPU threads.
#include <algorithm>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {
namespace {

// Copies of pageable memory to a GPU up to this size carry their bytes in the command and end after the call has
// returned (NVIDIA, CUDA Driver API, "API synchronization behavior").
constexpr u64 small_pageable = 64 << 10;

/// The copy goes through slots of a ring, chunk by chunk.
void through_ring(const Ring& ring, u32 slots, Op& op) {
  op.chunk_bytes = std::min(ring.chunk_bytes, op.bytes);
  op.chunks = static_cast<u32>((op.bytes + op.chunk_bytes - 1) / op.chunk_bytes);
  op.ring = slots;
}

}  // namespace

/// The part of a pageable copy that the driver's thread makes; it also queues each chunk's DMA.
Stage Compiler::pageable_memcpy(const Program& program, const Actor& actor, const Move& move, Direction direction,
                                Op& op) const {
  const bool in = direction == to_device;
  const Node host = host_of(actor), pageable = node(program.regions[in ? move.from.region : move.to.region].at);
  const double rate =
      in && op.bytes <= small_pageable ? machine_.small_pageable_rate : machine_.pageable_rate[direction];
  op.waits = true;
  op.call = machine_.pageable_call[direction];
  const double touches = in ? 0 : first_touches(program, program.regions[move.to.region], op.chunk_bytes);
  return {.by = Stage::By::thread,
          .server = servers_.copying_thread(actor.process),
          .path = memcpy_path(program, host, in ? pageable : host, in ? host : pageable, rate),
          .setup = machine_.costs.call + touches};
}

void Compiler::copy_by_cpu(const Program& program, const Actor& actor, const Move& move, Op& op) const {
  const auto &source = program.regions[move.from.region], &target = program.regions[move.to.region];
  const Node from = node(source.at), host = host_of(actor);
  // Each row is a copy of its own, and the threads divide the rows.
  const double rows = static_cast<double>(in_rows(move).count) / std::max(1u, move.shape.threads);
  op.stages.push_back({.by = Stage::By::thread,
                       .path = memcpy_path(program, host, from, node(target.at), memcpy_rate(host, op.bytes)),
                       .setup = machine_.costs.cpu_copy * std::max(1.0, rows)});
  const u32 threads = std::max(1u, move.shape.threads);
  auto& cap = op.stages[0].path.cap;
  cap = std::min({cap, cpu_cap(source, false), cpu_cap(target, true)}) * threads;
  op.stages[0].setup += first_touches(program, target, op.bytes) / threads;
  // In a row of copies the first loads of each overlap with the bytes of those before.
  op.lead = std::max(0.0, first_load(program, host, from) - static_cast<double>(op.bytes) / cap);
}

/// Seconds that one thread spends in the kernel for pages that nobody has touched.
double Compiler::first_touches(const Program& program, const Region& target, u64 bytes) const {
  if (program.cache != CacheState::fresh || !is_pageable(target.kind)) return 0;
  const auto& costs = *machine_.memory;
  const u64 page = traits_of(target.kind).huge_pages ? target.page_bytes : costs.page_bytes;
  const double pages = static_cast<double>(bytes) / static_cast<double>(page);
  return pages * (costs.fault + static_cast<double>(page) / costs.clear);
}

void Compiler::copy_within(Node gpu, Op& op) const {
  op.stages.push_back(engine_stage(gpu, within_device, gpu, gpu));
  op.stages[0].by = Stage::By::compute;
  op.stages[0].path.cap = machine_.gpu(gpu).local_copy;
  op.stages[0].setup += late(within_device, op.bytes);
}

void Compiler::copy_between_gpus(const Program& program, const Actor& actor, const Move& move, Op& op) const {
  const Node from = node(program.regions[move.from.region].at), to = node(program.regions[move.to.region].at);
  if (program.peer) {
    // A copy that the destination queues costs more, but the source's engine does the work: three copies of 8 B that
    // a GPU requests from three others take 13.3 us each, as one alone; three requested from one GPU take 40 us (four
    // H200s).
    op.stages.push_back(engine_stage(machine_.pull.extra > 0 ? from : node(actor.place), between_devices, from, to));
    if (node(actor.place) == to) op.stages[0].setup += pull_setup(op.stages[0].path, op.bytes);
    else if (op.bytes <= machine_.copy.in_command.bytes)
      op.stages[0].setup = machine_.copy.small_peer.value_or(op.stages[0].setup);
    return;
  }
  // The driver's own ring is on the node of the host thread that drives the stream.
  const Node host = host_of(actor);
  through_ring(machine_.staged_peer, servers_.staged_peer_ring(actor.process), op);
  op.stages.push_back(engine_stage(from, from_device, from, host));
  op.stages.push_back(engine_stage(to, to_device, host, to));
  for (auto& stage : op.stages) {
    stage.by = Stage::By::relay;
    stage.setup = machine_.staged_peer_chunk;
    stage.in_command = {};
  }
}

void Compiler::copy_to_gpu(const Program& program, const Actor& actor, const Move& move, Op& op) const {
  const auto& source = program.regions[move.from.region];
  const Node to = node(program.regions[move.to.region].at);
  if (!is_pageable(source.kind)) {
    op.stages.push_back(engine_stage(to, to_device, node(source.at), to));
    return;
  }
  through_ring(machine_.pageable, servers_.pageable_ring(actor.process, to_device), op);
  op.stages.push_back(pageable_memcpy(program, actor, move, to_device, op));
  op.stages.push_back(engine_stage(to, to_device, host_of(actor), to));
  if (machine_.small_pageable_setup) op.stages[1].in_command = {small_pageable, *machine_.small_pageable_setup, never};
  op.tail = machine_.pageable_end;
  op.overlaps = true;  // the call returns when the last chunk has left the source
}

void Compiler::copy_from_gpu(const Program& program, const Actor& actor, const Move& move, Op& op) const {
  const Node from = node(program.regions[move.from.region].at);
  const auto& target = program.regions[move.to.region];
  if (!is_pageable(target.kind)) {
    op.stages.push_back(engine_stage(from, from_device, from, node(target.at)));
    op.stages[0].setup += late(from_device, op.bytes);
    op.tail = machine_.copy.arrive;
    return;
  }
  through_ring(machine_.pageable, servers_.pageable_ring(actor.process, from_device), op);
  op.stages.push_back(engine_stage(from, from_device, from, host_of(actor)));
  op.stages[0].setup += late(from_device, op.chunk_bytes);
  op.stages.push_back(pageable_memcpy(program, actor, move, from_device, op));
}

/// Windows of a file in the page cache, one after another: a thread maps and pins the pages of each, the GPU copies them,
/// and the thread releases them. Pages of a file take as long to pin as others. The time before the copy includes that of
/// the release: only the sum is known.
Op Compiler::move_mapped(const Program& program, const Actor& actor, const Move& move) const {
  const Node to = node(program.regions[move.to.region].at);
  const auto& costs = *machine_.memory;
  const double windows = std::max(1u, move.shape.blocks),
               pages = static_cast<double>(move.from.bytes) / static_cast<double>(costs.page_bytes);
  Op op;
  op.bytes = op.chunk_bytes = move.from.bytes;
  op.moves = {move};
  op.stages.push_back({.by = Stage::By::thread,
                       .path = {},
                       .setup = windows * (2 * (costs.call + costs.pin) + machine_.costs.call + machine_.costs.sync) +
                                pages * (costs.pin_page + costs.unpin_page)});
  op.stages.push_back(engine_stage(to, to_device, host_of(actor), to));
  op.stages[1].setup *= windows;
  return op;
}

/// Straight from the disk into memory or back (GPUDirect Storage, O_DIRECT), by one call for each iteration, or for
/// each of the requests in flight. A model's disk has one rate, however many these are.
Op Compiler::move_file(const Program& program, const Move& move) const {
  const Region &source = program.regions[move.from.region], &target = program.regions[move.to.region];
  Op op;
  op.bytes = op.chunk_bytes = move.from.bytes;
  op.moves = {move};
  Stage stage;
  stage.by = Stage::By::call;
  add_links(stage.path, node(source.at), node(target.at));
  add_use(stage.path, node(source.at.kind == PlaceKind::disk ? target.at : source.at));
  stage.setup = machine_.costs.call * std::max(1u, move.shape.blocks);
  op.stages.push_back(std::move(stage));
  return op;
}

Op Compiler::op(const Program& program, const Actor& actor, const Move& move) const {
  if (move.engine == Engine::sm || move.engine == Engine::tma) return copy_by_sm(program, actor, move);
  if (move.engine == Engine::file)
    return program.cache == CacheState::cold ? move_file(program, move) : move_mapped(program, actor, move);
  if (move.engine == Engine::nic) return send(program, actor, move);
  const Node from = node(program.regions[move.from.region].at), to = node(program.regions[move.to.region].at);
  Op op;
  op.bytes = op.chunk_bytes = move.from.bytes;
  op.moves = {move};
  if (move.engine == Engine::cpu) copy_by_cpu(program, actor, move, op);
  else if (from == to) copy_within(from, op);
  else if (machine_.is_gpu(from) && machine_.is_gpu(to)) copy_between_gpus(program, actor, move, op);
  else if (machine_.is_gpu(to)) copy_to_gpu(program, actor, move, op);
  else copy_from_gpu(program, actor, move, op);
  if (by_copy_engine(move.engine)) in_pieces(move, op);
  if (move.engine == Engine::batch || move.engine == Engine::graph) together(move, op);
  return op;
}

}  // namespace linkscope::sim
