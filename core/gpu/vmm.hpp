// GPU memory in separate steps: creating it and mapping it.
#pragma once
#include "base/units.hpp"
#include "gpu/driver.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

/// Memory to be created on a GPU; the second can be exported as a POSIX file descriptor.
[[nodiscard]] CUmemAllocationProp on_device(CUdevice);
[[nodiscard]] CUmemAllocationProp exportable_on(CUdevice);
/// The size rounded up to whole granules.
[[nodiscard]] u64 whole_granules(const Driver&, const CUmemAllocationProp&, u64 bytes);

/// Owns GPU memory, or a share in it, without an address.
class PhysicalMemory {
 public:
  PhysicalMemory() = default;
  /// Throws Error{memory} if there is no more.
  PhysicalMemory(const Driver&, const CUmemAllocationProp&, u64 bytes);
  /// Memory that another process exported.
  PhysicalMemory(const Driver&, const Descriptor&);
  ~PhysicalMemory();  // without reporting errors
  PhysicalMemory(PhysicalMemory&&) noexcept;
  PhysicalMemory& operator=(PhysicalMemory&&) noexcept;

  [[nodiscard]] CUmemGenericAllocationHandle handle() const { return handle_; }
  /// What another process needs to share it.
  [[nodiscard]] Descriptor exported() const;
  void release();

 private:
  const Driver* driver_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
};

/// Owns a range of addresses in which memory is mapped.
class Mapping {
 public:
  Mapping(const Driver&, const PhysicalMemory&, u64 bytes, CUdevice);
  ~Mapping();  // without reporting errors
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] CUdeviceptr address() const { return address_; }
  /// Gives a GPU access.
  void allow(CUdevice) const;
  void unmap();

 private:
  const Driver& driver_;
  u64 bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

}  // namespace linkscope
