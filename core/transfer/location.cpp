#include "transfer/location.hpp"

#include <array>

namespace linkscope {
namespace {

CUdeviceptr as_pointer(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

Location locate(const Driver& driver, const void* address) {
  if (!driver.usable() || !driver.cuPointerGetAttributes) return {};
  u64 type = 0, managed = 0;  // the driver writes 4 bytes or fewer
  int device = -1;
  std::array asked{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, asked.size()> answers{&type, &managed, &device};
  LINKSCOPE_CU(driver, cuPointerGetAttributes, asked.size(), asked.data(), answers.data(), as_pointer(address));
  if (managed) return {MemoryType::managed, device};
  if (type == CU_MEMORYTYPE_DEVICE) return {MemoryType::device, device};
  return {type == CU_MEMORYTYPE_HOST ? MemoryType::pinned : MemoryType::pageable, -1};
}

Location locate_all(const Driver& driver, const void* start, u64 bytes) {
  const auto first = locate(driver, start);
  const u64 last = as_pointer(start) + bytes - 1;  // numbers that are taken for addresses may pass the last one
  const bool is_whole = bytes < 2 || locate(driver, reinterpret_cast<const void*>(last)) == first;
  return is_whole ? first : Location{MemoryType::managed, -1};
}

std::string to_string(const Location& location) {
  switch (location.memory) {
    case MemoryType::pageable:
      return "pageable memory";
    case MemoryType::pinned:
      return "pinned memory";
    case MemoryType::managed:
      return location.device < 0 ? "memory of different kinds" : "managed memory";
    case MemoryType::device:
      return "memory of GPU " + std::to_string(location.device);
  }
  return "";
}

u64 bytes_from(const Driver& driver, const void* address) {
  CUdeviceptr start = 0;
  std::size_t size = 0;
  std::array asked{CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, asked.size()> answers{&start, &size};
  if (!driver.cuPointerGetAttributes ||
      driver.cuPointerGetAttributes(asked.size(), asked.data(), answers.data(), as_pointer(address)) != CUDA_SUCCESS ||
      start == 0)
    return 0;
  return start + size - as_pointer(address);
}

}  // namespace linkscope
