#include "platform/sim/memory.hpp"

#include <algorithm>

#include "program/allocation.hpp"

namespace linkscope::sim {
namespace {

u32 generator_of(u32 region) { return region + 1; }

}  // namespace

void Memory::fill() {
  regions_.clear();
  for (u32 region = 0; region < program_.regions.size(); ++region)
    regions_.emplace_back(program_.regions[region].bytes,
                          program_.regions[region].content == Content::poison ? poison_generator : generator_of(region));
}

Memory::Memory(const Program& program, const Lanes& lanes, const Machine& machine, Ledger& ledger) : program_{program}, machine_{machine}, holding_{ledger} {
  for (u32 region = 0; region < program.regions.size(); ++region)
    if (!allocated_by_calls(program, region)) holding_.take(program.regions[region].at, program.regions[region].bytes, capacity(program.regions[region].at));
  fill();
  tracks_.resize(lanes.tracks);
  for (const auto& lane : lanes.lanes)
    for (const auto* ops : {&lane.once, &lane.loop})
      for (const auto& op : *ops) {
        for (u32 k = 0; k < op.moves.size(); ++k) {
          const auto& move = op.moves[k];
          const bool checkable = program.regions[move.from.region].content == Content::pattern;
          tracks_[op.id + k] = {checkable, &move, std::vector<u64>(move.to.slices)};
        }
      }
}

u64 Memory::capacity(const Place& place) const {
  const Node at = *machine_.find(place);
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
    const auto &from = late.move->from, &to = late.move->to;
    regions_[to.region].copy(late.target, regions_[from.region], late.source, from.bytes);
    return true;
  });
}

void Memory::start_afresh() {
  fill();
  for (auto& track : tracks_) std::fill(track.from.begin(), track.from.end(), 0);
  late_.clear();  // by now it has arrived, and is gone with the rest
  unmoved_ = 0;
  unmoved_wrong_ = false;
}

void Memory::copied(const Op& op, u64 iteration) {
  for (u32 k = 0; k < op.moves.size(); ++k) {
    const auto &from = op.moves[k].from, &to = op.moves[k].to;
    const u64 slice = iteration % to.slices, source = from.offset_at(iteration), target = to.offset + slice * to.stride;
    if (!lies_ || !between_gpus(op.moves[k])) regions_[to.region].copy(target, regions_[from.region], source, op.bytes);
    else if (*lies_ > 0) late_.push_back({&op.moves[k], source, target, sample_ + *lies_});
    tracks_[op.id + k].from[slice] = source + 1;
    if (corrupt_at_ && op.id + k == 0 && slice == 0) regions_[to.region].corrupt(target + *corrupt_at_ % op.bytes);
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
    verdict.first_wrong = "what the first actor read, wrote or followed";
  }
  for (const auto& track : tracks_) {
    if (!track.checkable) continue;
    const auto &from = track.move->from, &to = track.move->to;
    for (u64 slice = 0; slice < track.from.size(); ++slice) {
      if (track.from[slice] == 0) continue;
      const u64 at = to.offset_at(slice), source = track.from[slice] - 1;
      const auto wrong = regions_[to.region].check(at, to.bytes, generator_of(from.region), source);
      verdict.checked_bytes += to.bytes;
      if (wrong.bytes == 0) continue;
      if (verdict.ok) verdict.first_wrong = "region r" + std::to_string(to.region) + " at byte " + std::to_string(wrong.first);
      verdict.ok = false;
      verdict.wrong_bytes += wrong.bytes;
    }
  }
  return verdict;
}

}  // namespace linkscope::sim
