// Concurrent flows over shared capacities: every flow gets its max-min fair rate, anew whenever one starts or ends.
#pragma once
#include <array>
#include <limits>
#include <vector>

#include "base/units.hpp"

namespace linkscope::sim {

inline constexpr double never = std::numeric_limits<double>::infinity();

/// A resource that a flow crosses; weight is how many of its bytes one byte of the flow costs (a copy within one
/// memory reads and writes there: 2).
struct Use {
  u32 resource = 0;
  double weight = 1;
};

/// What a flow needs on its way.
struct Path {
  std::vector<Use> uses;
  double cap = never;      // B/s that the flow itself can do (a CPU thread, an engine)
  double latency = 0;      // s
  std::vector<u32> links;  // directed links, to count bytes on
};

struct Demand {
  const std::vector<Use>* uses = nullptr;
  double cap = never;
  double rate = 0;  // the answer
  enum class State : u8 { rising, stopped } state = State::rising;
};

/// Progressive filling: the rates of all demands rise together; each stops at its cap or when a resource it uses is
/// full. Reference: Bertsekas and Gallager, Data Networks, 6.5.2.
class MaxMin {
 public:
  explicit MaxMin(std::vector<double> capacities);
  void solve(std::vector<Demand>&);
  void set_capacity(u32 resource, double capacity) { capacity_[resource] = capacity; }

 private:
  std::vector<double> capacity_, left_, load_;  // by resource, as the others
  std::vector<u32> rising_;                     // how many uses of demands that still rise
  std::vector<u8> full_;                        // at the level of this pass
  std::vector<u32> used_;                       // the resources that any demand uses
};

/// Flows in progress. Time only moves through start() and finish().
class Fluid {
 public:
  explicit Fluid(std::vector<double> capacities) : max_min_{std::move(capacities)} {}

  /// `bytes` begin to flow; `owner` is handed back when they have arrived.
  void start(double now, const Path& path, double bytes, double cap, u32 owner);
  /// While no flow is in progress.
  void set_capacity(u32 resource, double capacity) {
    max_min_.set_capacity(resource, capacity);
    for (auto& known : solved_) known.clear();
  }
  /// Back to time 0, with no flow in progress.
  void rewind() { now_ = 0; }
  /// When the next flow ends; never if there is none.
  [[nodiscard]] double next_end() const { return next_end_; }
  /// Ends that flow and says whose it was.
  u32 finish();

 private:
  MaxMin max_min_;
  double now_ = 0, next_end_ = never;
  std::size_t next_ = 0;
  std::vector<Demand> demands_;
  std::vector<double> left_;  // bytes
  std::vector<u32> owners_;
  // Rates that were found before, by a hash of who was in progress: the same few keep meeting.
  static constexpr int solved_bits = 8;
  std::array<std::vector<Demand>, 1 << solved_bits> solved_;

  void advance(double now);
  void share();
  void find_rates();
};

}  // namespace linkscope::sim
