// Divides untimed work on host memory (touching, filling, comparing) among a few threads.
#pragma once
#include <algorithm>
#include <thread>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

/// Calls work(begin, end) for parts of [0, bytes) on up to sixteen threads; parts begin at multiples of `grain`.
template <class Work>
void parallel_ranges(u64 bytes, u64 grain, Work work) {
  constexpr u64 worth_a_thread = u64{4} << 20;
  static const u64 most =
      std::clamp<u64>(std::thread::hardware_concurrency(), 1, 16);  // the query takes 10 us, because it reads a file
  const u64 parts = std::clamp<u64>(bytes / worth_a_thread, 1, most);
  const u64 grains = (bytes + grain - 1) / grain;
  const auto bound = [&](u64 part) { return std::min(bytes, grains * part / parts * grain); };
  std::vector<std::jthread> threads;
  for (u64 part = 1; part < parts; ++part)
    threads.emplace_back([&work, begin = bound(part), end = bound(part + 1)] { work(begin, end); });
  work(0, bound(1));
}

}  // namespace linkscope
