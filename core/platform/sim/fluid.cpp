#include "platform/sim/fluid.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace linkscope::sim {

MaxMin::MaxMin(std::vector<double> capacities)
    : capacity_{std::move(capacities)},
      left_(capacity_.size()),
      load_(capacity_.size()),
      rising_(capacity_.size()),
      full_(capacity_.size()) {
  used_.reserve(capacity_.size());
}

void MaxMin::solve(std::vector<Demand>& demands) {
  using State = Demand::State;
  constexpr double slack = 1 + 1e-9;  // rounding must not separate resources that fill at the same level
  used_.clear();
  for (auto& demand : demands) {
    demand.state = State::rising;
    for (const auto& use : *demand.uses) {
      if (rising_[use.resource]++ == 0) {
        used_.push_back(use.resource);
        left_[use.resource] = capacity_[use.resource];
        load_[use.resource] = 0;
      }
      load_[use.resource] += use.weight;
    }
  }

  for (std::size_t waiting = demands.size(); waiting > 0;) {
    double level = never;
    for (const u32 resource : used_)
      if (rising_[resource] > 0) level = std::min(level, left_[resource] / load_[resource]);
    for (const auto& demand : demands)
      if (demand.state == State::rising) level = std::min(level, demand.cap);
    const double full = level * slack;
    for (const u32 resource : used_) full_[resource] = left_[resource] <= full * load_[resource];
    for (auto& demand : demands) {
      if (demand.state != State::rising) continue;
      bool stops = demand.cap <= full;
      for (const auto& use : *demand.uses) stops = stops || full_[use.resource];
      if (!stops) continue;
      demand.state = State::stopped;
      demand.rate = level;
      --waiting;
      for (const auto& use : *demand.uses) {  // full_ holds the levels that this pass compares with
        left_[use.resource] = std::max(0.0, left_[use.resource] - level * use.weight);
        load_[use.resource] -= use.weight;
        --rising_[use.resource];
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
  find_rates();
  next_end_ = never;
  for (std::size_t i = 0; i < left_.size(); ++i) {
    const double end = now_ + left_[i] / demands_[i].rate;
    if (end < next_end_) {
      next_end_ = end;
      next_ = i;
    }
  }
}

void Fluid::find_rates() {
  u64 hash = 0;
  for (const auto& demand : demands_)
    hash =
        (hash ^ reinterpret_cast<std::uintptr_t>(demand.uses) ^ std::bit_cast<u64>(demand.cap)) * 0x9E3779B97F4A7C15ull;
  auto& known = solved_[hash >> (64 - solved_bits)];
  const auto alike = [](const Demand& a, const Demand& b) { return a.uses == b.uses && a.cap == b.cap; };
  if (std::equal(demands_.begin(), demands_.end(), known.begin(), known.end(), alike)) {
    for (std::size_t i = 0; i < demands_.size(); ++i) demands_[i].rate = known[i].rate;
    return;
  }
  max_min_.solve(demands_);
  known = demands_;
}

}  // namespace linkscope::sim
