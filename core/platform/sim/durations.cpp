// Samples of a duration: lanes run until a common end.
#include <algorithm>
#include <limits>
#include <utility>

#include "platform/sim/simulation.hpp"

namespace linkscope::sim {

void Simulation::sample(const Duration& lasts, std::span<const Factors> factors, Stamp* stamps, Series* series) {
  start_afresh(factors);
  until_ = now_ + lasts.length.count();
  std::fill(common_.begin(), common_.end(), 0u);
  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    running_[lane].marks.emplace(lasts, series[lane], now_);
    running_[lane].latencies = lanes_[lane].singly ? &series[lane].latencies : nullptr;
    running_[lane].begun = now_;
    begin(lane, lanes_[lane].loop, std::numeric_limits<u32>::max());
  }
  run_to_end();
  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    auto& running = running_[lane];
    stamps[lane] = {running.start, running.end};
    running.marks->end(running.end, running.iteration / passes_);
  }
  stamp_grids(stamps);
  until_.reset();
}

/// Whether a lane that has ended an iteration begins another. Lanes that exchange words have one count: where one of them
/// has begun an iteration before the end, the others begin it too. Each pair of ranks has its own.
bool Simulation::goes_on(u32 lane) {
  auto& running = running_[lane];
  if (running.iteration % passes_ == 0 && running.latencies) {
    const auto begun = std::exchange(running.begun, now_);
    if (begun) running.latencies->add(now_ - *begun);
  }
  if (!until_) return running.iteration < running.iterations;
  if (running.iteration % passes_ != 0) return true;
  running.marks->add(now_, running.iteration / passes_);
  if (const double rest = lanes_[lane].rest; rest > 0) {
    running.works_from = now_ + rest * (now_ - running.works_from);
    return running.works_from < *until_;
  }
  const bool early = now_ < *until_;
  if (!lanes_[lane].exchanges) return early;
  u32& common = common_[lanes_[lane].pair];
  if (early) common = std::max(common, running.iteration);
  return running.iteration <= common;
}

}  // namespace linkscope::sim
