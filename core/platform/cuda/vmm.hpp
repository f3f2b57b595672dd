// GPU memory in separate steps: creating it and mapping it.
#pragma once
#include "base/units.hpp"
#include "host/descriptor.hpp"
#include "platform/cuda/driver.hpp"

namespace linkscope {

/// Creates memory on a GPU, exportable by a POSIX file descriptor if requested.
[[nodiscard]] CUmemAllocationProp on_device(CUdevice);
[[nodiscard]] CUmemAllocationProp exportable_on(CUdevice);
/// The size rounded up to whole granules.
[[nodiscard]] u64 whole_granules(const Driver&, const CUmemAllocationProp&, u64 bytes);

/// Memory that another process exported as a descriptor.
[[nodiscard]] CUmemGenericAllocationHandle import_descriptor(const Driver&, const Descriptor&);

/// Owns a range of addresses in which memory is mapped.
class Mapping {
 public:
  Mapping(const Driver&, CUmemGenericAllocationHandle, u64 bytes, CUdevice);
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
