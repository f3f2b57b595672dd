// The queues in which a GPU takes work from this process. Two streams may share one: a kernel of the second then starts
// when the kernel of the first has ended.
#pragma once
#include "base/units.hpp"

namespace linkscope {

inline constexpr u32 most_hardware_queues = 32;

/// The queues of a GPU by CUDA_DEVICE_MAX_CONNECTIONS, as the driver reads it when it starts; 8 by default.
[[nodiscard]] u32 hardware_queues();
/// Asks for as many as there are, unless the user has set a number. The driver is not loaded yet.
void ask_for_all_hardware_queues();

}  // namespace linkscope
