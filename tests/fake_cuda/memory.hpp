// Memory as the driver knows it. "Device memory" is host memory, and a device pointer is its address, so that unified
// addressing holds by itself.
#pragma once
#include <cuda.h>

#include <optional>

namespace fake {

struct Allocation {
  enum class Kind { device, host, registered } kind = Kind::device;
  unsigned long long base = 0, bytes = 0;
  CUdevice device = 0;  // kind device: whose memory it is
};

/// The allocation that holds all of [address, address + bytes), or nothing: pageable memory, or a mistake.
[[nodiscard]] std::optional<Allocation> find(unsigned long long address, unsigned long long bytes);
[[nodiscard]] inline std::optional<Allocation> find(const void* address, unsigned long long bytes) {
  return find(reinterpret_cast<unsigned long long>(address), bytes);
}
/// True when a kernel of this context may touch the range.
[[nodiscard]] bool reachable(CUcontext, const void* address, unsigned long long bytes);
[[nodiscard]] unsigned long long allocated_on(CUdevice);

}  // namespace fake
