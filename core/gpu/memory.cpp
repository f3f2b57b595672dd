#include "gpu/memory.hpp"

#include <utility>

namespace linkscope {

DeviceMemory::DeviceMemory(const Driver& driver, u64 bytes) : driver_{&driver} {
  LINKSCOPE_CU(*driver_, cuMemAlloc, &address_, bytes);
}

DeviceMemory DeviceMemory::managed(const Driver& driver, u64 bytes) {
  DeviceMemory memory;
  memory.driver_ = &driver;
  LINKSCOPE_CU(driver, cuMemAllocManaged, &memory.address_, bytes, CU_MEM_ATTACH_GLOBAL);
  return memory;
}

DeviceMemory::~DeviceMemory() {
  if (address_) driver_->cuMemFree(address_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(address_, other.address_);
  return *this;
}

void DeviceMemory::free() {
  if (address_) LINKSCOPE_CU(*driver_, cuMemFree, std::exchange(address_, 0));
}

PinnedMemory::PinnedMemory(const Driver& driver, u64 bytes, unsigned flags) : driver_{&driver} {
  void* start = nullptr;
  LINKSCOPE_CU(*driver_, cuMemHostAlloc, &start, bytes, flags);
  data_ = static_cast<std::byte*>(start);
}

PinnedMemory::~PinnedMemory() {
  if (data_) driver_->cuMemFreeHost(data_);
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(data_, other.data_);
  return *this;
}

void PinnedMemory::free() {
  if (data_) LINKSCOPE_CU(*driver_, cuMemFreeHost, std::exchange(data_, nullptr));
}

CUdeviceptr mapped_address(const Driver& driver, std::byte* host) {
  CUdeviceptr address = 0;
  LINKSCOPE_CU(driver, cuMemHostGetDevicePointer, &address, host, 0);
  return address;
}

}  // namespace linkscope
