// Durations of single iterations, counted in classes 1.1 % wide, so that hours of them need no more memory than seconds.
#pragma once
#include <optional>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

class Latencies {
 public:
  void add(double seconds);
  [[nodiscard]] u64 count() const { return count_; }
  /// In seconds, without the error of classes; none if there are no durations.
  [[nodiscard]] std::optional<double> mean() const;
  /// The duration, in seconds, that a part `q` of all durations does not exceed; none if there are no durations.
  [[nodiscard]] std::optional<double> quantile(double q) const;

 private:
  std::vector<u32> classes_;  // empty before the first duration
  u64 count_ = 0;
  double sum_s_ = 0;
};

}  // namespace linkscope
