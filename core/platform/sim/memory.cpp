#include "platform/sim/memory.hpp"

namespace linkscope::sim {
namespace {

u32 generator_of(u32 region) { return region + 1; }

}  // namespace

Memory::Memory(const Program& program, const Lanes& lanes) {
  for (u32 region = 0; region < program.regions.size(); ++region)
    regions_.emplace_back(program.regions[region].bytes,
                          program.regions[region].content == Content::poison ? poison_generator : generator_of(region));
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

void Memory::copied(const Op& op, u64 iteration) {
  for (u32 k = 0; k < op.moves.size(); ++k) {
    const auto &from = op.moves[k].from, &to = op.moves[k].to;
    const u64 source = from.offset_at(iteration), target = to.offset_at(iteration);
    regions_[to.region].copy(target, regions_[from.region], source, op.bytes);
    tracks_[op.id + k].from[iteration % to.slices] = source + 1;
    if (corrupt_at_ && op.id + k == 0 && iteration % to.slices == 0) regions_[to.region].corrupt(target + *corrupt_at_ % op.bytes);
  }
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
