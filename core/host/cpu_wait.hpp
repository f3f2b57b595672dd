// How long the calling thread has waited for a CPU.
#pragma once
#include "base/units.hpp"

namespace linkscope {

/// The time since the calling thread began in which it was ready to run, but other threads had the CPUs: second number of
/// /proc/thread-self/schedstat (Linux, Documentation/scheduler/sched-stats.rst). 0 if the kernel does not count it.
[[nodiscard]] Seconds waited_for_cpu();

}  // namespace linkscope
