// Untimed work on memory, each GPU in its own thread: GPUs fill and compare over separate links.
#pragma once
#include <functional>
#include <vector>

#include "gpu/device.hpp"

namespace linkscope {

/// The work of one GPU, or of the host.
struct DeviceWork {
  Device* device = nullptr;
  std::function<void()> work;
};

/// Does all work. The work of one GPU runs in the order of the list. Throws the first error.
void side_by_side(const std::vector<DeviceWork>&);

}  // namespace linkscope
