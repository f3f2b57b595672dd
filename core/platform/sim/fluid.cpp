#include "platform/sim/fluid.hpp"

#include <algorithm>

namespace linkscope::sim {

MaxMin::MaxMin(std::vector<double> capacities)
    : capacity_{std::move(capacities)}, left_(capacity_.size()), load_(capacity_.size()) {}

void MaxMin::solve(std::vector<Demand>& demands) {
  using State = Demand::State;
  constexpr double slack = 1 + 1e-9;  // resources that fill at the same level must not part over rounding
  for (auto& demand : demands) {
    demand.state = State::rising;
    for (const auto& use : *demand.uses) {
      left_[use.resource] = capacity_[use.resource];
      load_[use.resource] = 0;
    }
  }
  for (const auto& demand : demands)
    for (const auto& use : *demand.uses) load_[use.resource] += use.weight;

  for (std::size_t waiting = demands.size(); waiting > 0;) {
    double level = never;
    for (const auto& demand : demands) {
      if (demand.state != State::rising) continue;
      level = std::min(level, demand.cap);
      for (const auto& use : *demand.uses) level = std::min(level, left_[use.resource] / load_[use.resource]);
    }
    const double full = level * slack;
    for (auto& demand : demands) {
      if (demand.state != State::rising) continue;
      bool stops = demand.cap <= full;
      for (const auto& use : *demand.uses) stops = stops || left_[use.resource] <= full * load_[use.resource];
      if (stops) demand.state = State::stopping;  // resources still hold what this pass compares with
    }
    for (auto& demand : demands) {
      if (demand.state != State::stopping) continue;
      demand.state = State::stopped;
      demand.rate = level;
      --waiting;
      for (const auto& use : *demand.uses) {
        left_[use.resource] = std::max(0.0, left_[use.resource] - level * use.weight);
        load_[use.resource] -= use.weight;
      }
    }
  }
}

void Fluid::start(double now, const Path& path, double bytes, double cap, u32 owner) {
  advance(now);
  demands_.push_back({&path.uses, std::min(cap, path.cap)});
  left_.push_back(bytes);
  owners_.push_back(owner);
  share();
}

u32 Fluid::finish() {
  const std::size_t ending = next_;
  advance(next_end_);
  const u32 owner = owners_[ending];
  demands_.erase(demands_.begin() + static_cast<std::ptrdiff_t>(ending));
  left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(ending));
  owners_.erase(owners_.begin() + static_cast<std::ptrdiff_t>(ending));
  share();
  return owner;
}

void Fluid::advance(double now) {
  for (std::size_t i = 0; i < left_.size(); ++i) left_[i] = std::max(0.0, left_[i] - demands_[i].rate * (now - now_));
  now_ = now;
}

void Fluid::share() {
  max_min_.solve(demands_);
  next_end_ = never;
  for (std::size_t i = 0; i < left_.size(); ++i) {
    const double end = now_ + left_[i] / demands_[i].rate;
    if (end < next_end_) {
      next_end_ = end;
      next_ = i;
    }
  }
}

}  // namespace linkscope::sim
