// How long the calling thread has waited for a CPU.
#pragma once
#include <chrono>

#include "base/units.hpp"

namespace linkscope {

/// The time since the calling thread began in which it was ready to run, but other threads had the CPUs: second number of
/// /proc/thread-self/schedstat (Linux, Documentation/scheduler/sched-stats.rst). 0 if the kernel does not count it.
[[nodiscard]] Seconds waited_for_cpu();

/// The time of the calling thread since the clock was made, without its waits for a CPU.
class OwnClock {
 public:
  [[nodiscard]] Seconds elapsed() const {
    return std::chrono::steady_clock::now() - start_ - (waited_for_cpu() - waited_);
  }

 private:
  Seconds waited_ = waited_for_cpu();
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace linkscope
