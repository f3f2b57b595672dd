// Facts about GPUs that need no context.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

struct DeviceFacts {
  CUdevice handle = 0;
  std::string name, uuid, pci;
  u64 memory_bytes = 0;
  std::vector<std::pair<std::string, int>> attributes;  // those that the driver knows
  [[nodiscard]] int attribute(const std::string& name, int otherwise) const;
};

struct PeerFacts {
  u32 from = 0, to = 0;
  bool access = false, native_atomics = false;
  int performance_rank = 0;
};

/// All GPUs that the driver shows, in PCI bus order.
[[nodiscard]] std::vector<DeviceFacts> list_devices(const Driver&);
/// All pairs of these GPUs; none if the driver has no such call.
[[nodiscard]] std::vector<PeerFacts> list_peers(const Driver&, const std::vector<DeviceFacts>&);

}  // namespace linkscope
