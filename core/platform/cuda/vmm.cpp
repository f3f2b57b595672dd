#include "platform/cuda/vmm.hpp"

#include <cstdint>
#include <utility>

namespace linkscope {

CUmemAllocationProp on_device(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  return prop;
}

CUmemAllocationProp exportable_on(CUdevice device) {
  auto prop = on_device(device);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

u64 whole_granules(const Driver& driver, const CUmemAllocationProp& prop, u64 bytes) {
  std::size_t granule = 0;
  LINKSCOPE_CU(driver, cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  return (bytes + granule - 1) / granule * granule;
}

CUmemGenericAllocationHandle import_descriptor(const Driver& driver, const Descriptor& descriptor) {
  // The driver takes the number of the descriptor in place of an address.
  auto* number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  CUmemGenericAllocationHandle handle = 0;
  LINKSCOPE_CU(driver, cuMemImportFromShareableHandle, &handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return handle;
}

Mapping::Mapping(const Driver& driver, CUmemGenericAllocationHandle handle, u64 bytes, CUdevice device)
    : driver_{driver}, bytes_{bytes} {
  CUdeviceptr start = 0;
  LINKSCOPE_CU(driver_, cuMemAddressReserve, &start, bytes_, 0, 0, 0);
  address_ = start;
  try {
    LINKSCOPE_CU(driver_, cuMemMap, address_, bytes_, 0, handle, 0);
    mapped_ = true;
    allow(device);
  } catch (...) {
    if (mapped_) driver_.cuMemUnmap(address_, bytes_);
    driver_.cuMemAddressFree(address_, bytes_);
    throw;
  }
}

Mapping::~Mapping() {
  if (mapped_) driver_.cuMemUnmap(address_, bytes_);
  if (address_) driver_.cuMemAddressFree(address_, bytes_);
}

void Mapping::allow(CUdevice device) const {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  LINKSCOPE_CU(driver_, cuMemSetAccess, address_, bytes_, &access, 1);
}

void Mapping::unmap() {
  if (std::exchange(mapped_, false)) LINKSCOPE_CU(driver_, cuMemUnmap, address_, bytes_);
  if (address_) LINKSCOPE_CU(driver_, cuMemAddressFree, std::exchange(address_, 0), bytes_);
}

}  // namespace linkscope
