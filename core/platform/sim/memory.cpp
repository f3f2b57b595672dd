#include "platform/sim/memory.hpp"

#include <algorithm>
#include <limits>

#include "program/allocation.hpp"
#include "program/origin.hpp"

namespace linkscope::sim {
namespace {

constexpr u64 most_rows = u64{1} << 16;  // recorded for each copy, in whole slices

u32 generator_of(u32 region) { return region + 1; }

}  // namespace

void Memory::fill() {
  regions_.clear();
  for (u32 region = 0; region < program_.regions.size(); ++region)
    regions_.emplace_back(program_.regions[region].bytes, program_.regions[region].content == Content::poison
                                                              ? poison_generator
                                                              : generator_of(region));
}

Memory::Memory(const Program& program, const Lanes& lanes, const Machine& machine, Ledger& ledger)
    : program_{program}, machine_{machine}, holding_{ledger} {
  for (u32 region = 0; region < program.regions.size(); ++region)
    if (!allocated_by_calls(program, region) && program.regions[region].at.kind != PlaceKind::disk)
      holding_.take(program.regions[region].at, program.regions[region].bytes, capacity(program.regions[region].at));
  fill();
  tracks_.resize(lanes.tracks);
  for (std::size_t actor = 0; actor < lanes.lanes.size(); ++actor)
    for (const auto* ops : {&lanes.lanes[actor].once, &lanes.lanes[actor].loop})
      for (const auto& op : *ops) {
        for (u32 k = 0; k < op.moves.size(); ++k) {
          const auto& move = op.moves[k];
          const Span& from = pattern_of(program, program.actors[actor], move);
          const bool checkable = has_pattern(program.regions[from.region].content);
          const u64 rows = std::max(in_rows(move).count, in_rows(Move{from, move.to}).count);
          tracks_[op.id + k] = {checkable,
                                &move,
                                &from,
                                in_rows(move),
                                std::vector<u64>(move.to.slices),
                                std::vector<bool>(move.to.slices),
                                rows == 1 ? move.to.slices : std::max<u64>(1, most_rows / rows)};
        }
      }
}

void Memory::deliver(const Track& track, u64 source, u64 target) {
  const auto &from = track.move->from, &to = track.move->to;
  if (track.rows.count > 1) regions_[to.region].copy_rows(target, regions_[from.region], source, track.rows);
  else regions_[to.region].copy(target, regions_[from.region], source, from.bytes);
}

u64 Memory::capacity(const Place& place) const {
  const Node at = *machine_.find(place);
  if (machine_.nic(at)) return std::numeric_limits<u64>::max();  // registers
  return machine_.is_gpu(at) ? machine_.gpu(at).memory_bytes : machine_.numa[at].memory_bytes;
}

void Memory::call(const Phase& phase, u64 iteration) {
  const Span& span = phase.span;
  const Place& at = program_.regions[span.region].at;
  auto& there = called_[span.region];
  there.resize(span.slices);
  const auto bring = [&](u64 slice) {
    if (there[slice] == phase.holds) return;
    if (phase.holds) holding_.take(at, span.bytes, capacity(at));
    else holding_.give_back(at, span.bytes);
    there[slice] = phase.holds;
  };
  if (!phase.until) return bring(iteration % span.slices);
  for (u64 slice = 0; slice < span.slices; ++slice) bring(slice);
}

bool Memory::between_gpus(const Move& move) const {
  const auto &from = program_.regions[move.from.region].at, &to = program_.regions[move.to.region].at;
  return from.kind == PlaceKind::gpu && to.kind == PlaceKind::gpu && from != to;
}

void Memory::begin_sample(std::optional<u64> lies) {
  ++sample_;
  lies_ = lies;
  std::erase_if(late_, [&](const Late& late) {
    if (late.sample > sample_) return false;
    deliver(*late.track, late.source, late.target);
    return true;
  });
}

void Memory::start_afresh() {
  fill();
  for (auto& track : tracks_) {
    std::fill(track.from.begin(), track.from.end(), 0);
    track.there.assign(track.there.size(), false);
  }
  late_.clear();  // it has arrived by now, and ends with the rest
  unmoved_ = 0;
  unmoved_wrong_ = false;
}

void Memory::copied(const Op& op, u64 iteration) {
  for (u32 k = 0; k < op.moves.size(); ++k) {
    Track& track = tracks_[op.id + k];
    const auto &from = op.moves[k].from, &to = op.moves[k].to;
    const u64 slice = iteration % to.slices, source = from.offset_at(iteration), target = to.offset + slice * to.stride;
    const u64 written = track.origin->offset_at(iteration) + 1;
    const bool lies = lies_ && between_gpus(op.moves[k]);
    // Rows are expensive to record, and repeating the same rows changes nothing.
    const bool again = track.rows.count > 1 && track.there[slice] && track.from[slice] == written;
    if (lies && *lies_ > 0) late_.push_back({&track, source, target, sample_ + *lies_});
    if (!lies && !again && slice < track.written_down) deliver(track, source, target);
    track.there[slice] = !lies;
    track.from[slice] = written;
    if (corrupt_at_ && op.id + k == 0 && slice == 0) {
      const u64 byte = *corrupt_at_ % op.bytes;
      regions_[to.region].corrupt(target + track.rows.to.offset_of(byte / track.rows.bytes) + byte % track.rows.bytes);
    }
  }
  if (op.phase) return call(*op.phase, iteration);
  if (op.moves.empty()) {
    unmoved_ += op.bytes;
    if (corrupt_at_ && op.id == 0) unmoved_wrong_ = true;
  }
}

Verdict Memory::verify() const {
  Verdict verdict;
  verdict.checked_bytes = unmoved_;
  if (unmoved_wrong_) {
    verdict.ok = false;
    verdict.wrong_bytes = 1;
    verdict.first_wrong = "data that the first actor read, wrote or followed";
  }
  for (const auto& track : tracks_) {
    if (!track.checkable) continue;
    for (u64 slice = 0; slice < track.from.size(); ++slice)
      if (track.from[slice] != 0) check(track, slice, verdict);
  }
  return verdict;
}

/// The content of a slice: the copied rows, and between them the earlier content.
void Memory::check(const Track& track, u64 slice, Verdict& verdict) const {
  const auto& to = track.move->to;
  const auto rows = in_rows(Move{*track.origin, to});
  const auto& region = regions_[to.region];
  const u64 at = to.offset_at(slice), source = track.from[slice] - 1;
  const auto add = [&](const Wrong& wrong) {
    if (wrong.bytes == 0) return;
    if (verdict.ok)
      verdict.first_wrong = "region r" + std::to_string(to.region) + " at byte " + std::to_string(wrong.first);
    verdict.ok = false;
    verdict.wrong_bytes += wrong.bytes;
  };
  verdict.checked_bytes += to.bytes;
  if (slice >= track.written_down) return add({track.there[slice] ? 0 : to.bytes, at});
  u64 done = at;
  for (u64 row = 0; row < rows.count; ++row) {
    const u64 begin = at + rows.to.offset_of(row);
    if (done < begin) add(region.check(done, begin - done, poison_generator, done));
    add(region.check(begin, rows.bytes, generator_of(track.origin->region), source + rows.from.offset_of(row)));
    done = begin + rows.bytes;
  }
}

}  // namespace linkscope::sim
