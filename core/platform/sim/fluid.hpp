// Concurrent flows over shared capacities: every flow gets its max-min fair rate, computed anew whenever one starts or
// ends.
#pragma once
#include <array>
#include <limits>
#include <vector>

#include "base/units.hpp"

namespace linkscope::sim {

inline constexpr double never = std::numeric_limits<double>::infinity();

/// A resource that a flow crosses; weight is how many of its bytes one byte of the flow uses (2 for a copy within one
/// memory, which reads and writes there).
struct Use {
  u32 resource = 0;
  double weight = 1;
};

/// The requirements of a flow.
struct Path {
  std::vector<Use> uses;
  double cap = never;      // B/s that the flow itself can reach (a CPU thread, an engine)
  double latency = 0;      // s
  std::vector<u32> links;  // directed links, to count bytes on
};

struct Demand {
  const std::vector<Use>* uses = nullptr;
  double cap = never;
  double rate = 0;  // the result
  enum class State : u8 { rising, stopped } state = State::rising;
};

/// Progressive filling: the rates of all demands rise together; each stops at its cap or when a resource it uses is
/// full (Bertsekas and Gallager, Data Networks, 6.5.2).
class MaxMin {
 public:
  explicit MaxMin(std::vector<double> capacities);
  void solve(std::vector<Demand>&);
  void set_capacity(u32 resource, double capacity) { capacity_[resource] = capacity; }

 private:
  std::vector<double> capacity_, left_, load_;  // by resource, as the others
  std::vector<u32> rising_;                     // uses by demands that still rise
  std::vector<u8> full_;                        // at the level of this pass
  std::vector<u32> used_;                       // resources that any demand uses
};

/// Flows in progress. Time only moves through start() and finish().
class Fluid {
 public:
  explicit Fluid(std::vector<double> capacities) : max_min_{std::move(capacities)} {}

  /// Starts a flow of `bytes`; `owner` is returned when they have arrived.
  void start(double now, const Path& path, double bytes, double cap, u32 owner);
  /// Only while no flow is in progress.
  void set_capacity(u32 resource, double capacity) {
    max_min_.set_capacity(resource, capacity);
    for (auto& known : solved_) known.clear();
  }
  /// Back to time 0, with no flow in progress.
  void rewind() { now_ = 0; }
  /// The end of the next flow; never without one.
  [[nodiscard]] double next_end() const { return next_end_; }
  /// Ends that flow and returns its owner.
  u32 finish();

 private:
  MaxMin max_min_;
  double now_ = 0, next_end_ = never;
  std::size_t next_ = 0;
  std::vector<Demand> demands_;
  std::vector<double> left_;  // bytes
  std::vector<u32> owners_;
  // Known rates by a hash of the flows in progress, because the same sets recur.
  static constexpr int solved_bits = 8;
  std::array<std::vector<Demand>, 1 << solved_bits> solved_;

  void advance(double now);
  void share();
  void find_rates();
};

}  // namespace linkscope::sim
