// Memory of a GPU by its parts: what is made, and where it is mapped.
#pragma once
#include "base/units.hpp"
#include "platform/cuda/driver.hpp"
#include "platform/host/descriptor.hpp"

namespace linkscope {

/// What is made on a GPU; such that others may open it by a POSIX file descriptor, where that is wanted.
[[nodiscard]] CUmemAllocationProp on_device(CUdevice);
[[nodiscard]] CUmemAllocationProp exportable_on(CUdevice);
/// So many bytes and what is missing to whole granules.
[[nodiscard]] u64 whole_granules(const Driver&, const CUmemAllocationProp&, u64 bytes);

/// What another process exported as a descriptor.
[[nodiscard]] CUmemGenericAllocationHandle import_descriptor(const Driver&, const Descriptor&);

/// Owns a range of addresses where memory is mapped.
class Mapping {
 public:
  Mapping(const Driver&, CUmemGenericAllocationHandle, u64 bytes, CUdevice);
  ~Mapping();  // without complaint
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] CUdeviceptr address() const { return address_; }
  /// Lets a GPU reach it.
  void allow(CUdevice) const;
  void unmap();

 private:
  const Driver& driver_;
  u64 bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

}  // namespace linkscope
