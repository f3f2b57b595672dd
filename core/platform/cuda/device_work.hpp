// Untimed work on memory, each GPU's in a thread of its own: GPUs fill and compare over links of their own.
#pragma once
#include <functional>
#include <vector>

#include "platform/cuda/device.hpp"

namespace linkscope {

/// What one GPU is to do, or the host where there is none.
struct DeviceWork {
  Device* device = nullptr;
  std::function<void()> work;
};

/// Does all of it; the work of one GPU in its order. Throws what was thrown first.
void side_by_side(const std::vector<DeviceWork>&);

}  // namespace linkscope
