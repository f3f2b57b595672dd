#include "gpu/vmm.hpp"

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

PhysicalMemory::PhysicalMemory(const Driver& driver, const CUmemAllocationProp& prop, u64 bytes) : driver_{&driver} {
  LINKSCOPE_CU(*driver_, cuMemCreate, &handle_, bytes, &prop, 0);
}

PhysicalMemory::PhysicalMemory(const Driver& driver, const Descriptor& descriptor) : driver_{&driver} {
  // The driver takes the number of the descriptor in place of an address.
  auto* number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  LINKSCOPE_CU(*driver_, cuMemImportFromShareableHandle, &handle_, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

PhysicalMemory::~PhysicalMemory() {
  if (handle_) driver_->cuMemRelease(handle_);
}

PhysicalMemory::PhysicalMemory(PhysicalMemory&& other) noexcept { *this = std::move(other); }

PhysicalMemory& PhysicalMemory::operator=(PhysicalMemory&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(handle_, other.handle_);
  return *this;
}

Descriptor PhysicalMemory::exported() const {
  int number = -1;
  LINKSCOPE_CU(*driver_, cuMemExportToShareableHandle, &number, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  return Descriptor{number};
}

void PhysicalMemory::release() {
  if (handle_) LINKSCOPE_CU(*driver_, cuMemRelease, std::exchange(handle_, 0));
}

Mapping::Mapping(const Driver& driver, const PhysicalMemory& memory, u64 bytes, CUdevice device)
    : driver_{driver}, bytes_{bytes} {
  CUdeviceptr start = 0;
  LINKSCOPE_CU(driver_, cuMemAddressReserve, &start, bytes_, 0, 0, 0);
  address_ = start;
  try {
    LINKSCOPE_CU(driver_, cuMemMap, address_, bytes_, 0, memory.handle(), 0);
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
