#include "platform/cuda/batches.hpp"

#include <algorithm>
#include <functional>

#include "program/chain.hpp"

namespace linkscope {
namespace {

/// Whether an iteration accesses one line of the span, and not a slice.
bool chases(const Kernel& kernel) {
  const auto& traits = traits_of(kernel.id);
  return traits.follows_chain && !traits.touches_pages;
}

}  // namespace

u32 whole_footprint(const Program& program, const Actor& actor) {
  u64 most = 1;
  for (const auto& step : actor.loop) {
    const auto* kernel = std::get_if<Kernel>(&step);
    for (const auto& touch : touches(step))
      most =
          std::max<u64>(most, kernel && chases(*kernel) ? touch.span.bytes / linkscope_chain_line : touch.span.slices);
  }
  return static_cast<u32>((most + program.passes - 1) / program.passes);
}

std::vector<u32> rehearsal_batch(const Program& program, bool all_memory) {
  std::vector<u32> batch;
  u32 exchanging = 1;
  for (const auto& actor : program.actors) {
    batch.push_back(all_memory ? whole_footprint(program, actor) : 1);
    if (keeps_step(actor)) exchanging = std::max(exchanging, batch.back());
  }
  for (std::size_t a = 0; a < batch.size(); ++a)
    if (keeps_step(program.actors[a])) batch[a] = exchanging;
  return batch;
}

std::vector<u32> at_most_footprint(const Program& program, std::vector<u32> batch) {
  const auto footprint = rehearsal_batch(program, true);
  for (std::size_t a = 0; a < batch.size(); ++a) batch[a] = std::min(batch[a], footprint[a]);
  return batch;
}

bool within(const std::vector<u32>& small, const std::vector<u32>& large) {
  return std::equal(small.begin(), small.end(), large.begin(), large.end(), std::less_equal<>{});
}

std::vector<u32> halved(std::vector<u32> batch) {
  for (u32& count : batch) count = (count + 1) / 2;
  return batch;
}

}  // namespace linkscope
