// Copies that are not contiguous, or not queued one by one: rows, and copies that one call or one graph queues
// together.
#include <algorithm>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

Support Compiler::supports_pieces(const Program& program, const Actor& actor, const Move& move) const {
  const auto rows = in_rows(move);
  const Region &source = program.regions[move.from.region], &target = program.regions[move.to.region];
  const auto silent = [&](const std::string& what, const char* key) {
    return Support::no("the model " + machine_.name + " does not say " + what + ": " + key);
  };
  const bool together = move.engine == Engine::batch || move.engine == Engine::graph,
             simple = rows.count == 1 && !together;
  if (move.by && !machine_.costs.stream_wait)
    return silent("how long one stream waits for another", "stream_wait_us of [costs]");
  if (simple) return {};
  if (move.engine == Engine::cpu) return {};
  if (move.engine == Engine::tma) return Support::no("the model's copies by tma are of one piece");
  for (const auto* region : {&source, &target})
    if (is_pageable(region->kind)) return Support::no("the model's pageable copies are of one piece, by single calls");
  if (move.engine == Engine::sm) return {};
  if (source.at != target.at && machine_.is_gpu(node(source.at)) && machine_.is_gpu(node(target.at)) && !program.peer)
    return Support::no("the model's copies without peer access are of one piece, by single calls");
  if (move.engine == Engine::batch && !machine_.batch)
    return silent("what a batched copy costs", "its file has no [batch]");
  if (move.engine == Engine::graph && !machine_.graph)
    return silent("what a copy in a graph costs", "its file has no [graph]");
  if (together && actor.loop.size() > 1)
    return Support::no("in the model, copies that are issued together must be the whole loop");
  if (rows.count > 1 && !move.row_by_row && !machine_.copy.row)
    return silent("how long a copy engine takes for a row", "row_us of [copy]");
  if (move.engine == Engine::batch && rows.count > 1 && !move.row_by_row)
    return Support::no("batched copies are of pieces: rows are copied one by one");
  return {};
}

/// Ratio of bytes on memory and links to bytes copied by SMs: rows begin and end within sectors.
double Compiler::sectors(const Span& span) const {
  const u64 row = span.rows.bytes;
  if (row == 0) return 1;
  const u64 whole_sectors = (row + sector_bytes - 1) / sector_bytes * sector_bytes;
  return static_cast<double>(whole_sectors) / static_cast<double>(row);
}

/// Rows: a chunk each, or one copy whose engine goes from row to row while earlier bytes flow.
void Compiler::in_pieces(const Move& move, Op& op) const {
  const auto rows = in_rows(move);
  if (rows.count == 1) return;
  if (move.row_by_row) {
    op.chunk_bytes = rows.bytes;
    op.chunks = op.calls = static_cast<u32>(rows.count);
    return;
  }
  auto& cap = op.stages[0].path.cap;
  if (*machine_.copy.row > 0) cap = std::min(cap, static_cast<double>(rows.bytes) / *machine_.copy.row);
  op.stages[0].in_command = {};  // commands carry contiguous bytes
}

/// All copies of a batch by one call or one launch. A graph's nodes wait for each other, and so do a batch's copies
/// within a GPU (H200: as slow as single calls); other copies of a batch do not.
void Compiler::together(const Move& move, Op& op) const {
  op.calls = 0;
  op.overlaps = true;
  Stage& copy = op.stages[0];
  if (move.engine == Engine::graph) {
    op.lead = machine_.graph->launch;
    copy.setup += machine_.graph->node;
    copy.in_command = {};  // its command was made before the bytes were known
    return;
  }
  if (copy.by == Stage::By::compute) return;
  const bool small = op.chunk_bytes <= copy.in_command.bytes;
  Stage issue;
  issue.by = Stage::By::relay;
  issue.gpu = copy.gpu;
  issue.setup = machine_.batch->issue;
  op.lead = copy.path.latency + (small ? copy.in_command.setup : copy.setup);
  copy.path.latency = 0;  // the bytes of one copy flow during the set-up of the next
  copy.setup = 0;
  if (small) copy.path.cap = copy.in_command.rate, copy.by = Stage::By::compute;
  copy.in_command = {};
  op.stages.insert(op.stages.begin(), std::move(issue));
}

}  // namespace linkscope::sim
