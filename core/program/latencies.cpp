#include "program/latencies.hpp"

#include <algorithm>
#include <cmath>

namespace linkscope {
namespace {

constexpr double shortest_s = 1e-9, of_octave = 64;
constexpr std::size_t classes = 2560;  // 40 octaves: up to 18 minutes

}  // namespace

void Latencies::add(double seconds) {
  if (classes_.empty()) classes_.resize(classes);
  const double at = std::log2(std::max(seconds / shortest_s, 1.0)) * of_octave;
  ++classes_[std::min(static_cast<std::size_t>(at), classes - 1)];
  ++count_;
  sum_s_ += seconds;
}

std::optional<double> Latencies::mean() const {
  if (count_ == 0) return {};
  return sum_s_ / static_cast<double>(count_);
}

std::optional<double> Latencies::quantile(double q) const {
  if (count_ == 0) return {};
  const auto rank = static_cast<u64>(std::ceil(q * static_cast<double>(count_)));
  u64 below = 0;
  std::size_t found = 0;
  while ((below += classes_[found]) < std::max<u64>(rank, 1)) ++found;
  return shortest_s * std::exp2((static_cast<double>(found) + 0.5) / of_octave);
}

}  // namespace linkscope
