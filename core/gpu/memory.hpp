// Owners of memory that the driver allocates. Their calls need a current context (context.hpp): for a GPU's memory, one
// of that GPU.
#pragma once
#include <cstddef>

#include "base/units.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

/// Owns memory with an address for GPUs.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Memory of the current context's GPU. Throws Error{memory} if there is no more; so do the other allocations.
  DeviceMemory(const Driver&, u64 bytes);
  /// Memory whose pages move between processors.
  [[nodiscard]] static DeviceMemory managed(const Driver&, u64 bytes);
  ~DeviceMemory();  // without reporting errors
  DeviceMemory(DeviceMemory&&) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) noexcept;

  [[nodiscard]] CUdeviceptr address() const { return address_; }  // 0: none
  void free();

 private:
  const Driver* driver_ = nullptr;
  CUdeviceptr address_ = 0;
};

/// Owns page-locked host memory.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  /// `flags`: CU_MEMHOSTALLOC_…
  PinnedMemory(const Driver&, u64 bytes, unsigned flags);
  ~PinnedMemory();  // without reporting errors
  PinnedMemory(PinnedMemory&&) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }  // null: none
  void free();

 private:
  const Driver* driver_ = nullptr;
  std::byte* data_ = nullptr;
};

/// The address for the current context's GPU of page-locked host memory.
[[nodiscard]] CUdeviceptr mapped_address(const Driver&, std::byte* host);

}  // namespace linkscope
