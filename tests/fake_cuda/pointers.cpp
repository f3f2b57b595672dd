// What the driver knows about an address.
#include "calls.hpp"
#include "context.hpp"
#include "memory.hpp"

namespace fake {
namespace {

unsigned type_of(const std::optional<Allocation>& allocation) {
  if (!allocation) return 0;
  const bool on_host = allocation->kind == Allocation::Kind::host || allocation->kind == Allocation::Kind::registered;
  return on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

/// Whether kernels of the current context may touch the memory. Asking moves no managed pages.
bool is_reached(const Allocation& allocation, CUdeviceptr address) {
  if (!current()) return false;
  return allocation.kind == Allocation::Kind::managed ||
         reachable(current(), reinterpret_cast<const void*>(address), 1);
}

/// Writes one answer. An address that the driver does not know has zeros, and -1 as its device.
bool answer(CUpointer_attribute asked, void* to, CUdeviceptr address, const std::optional<Allocation>& allocation) {
  switch (asked) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(to) = allocation && is_reached(*allocation, address) ? address : 0;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(to) = type_of(allocation);
      return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(to) = allocation && allocation->kind == Allocation::Kind::managed;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(to) = allocation ? allocation->device : -1;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(to) = allocation ? allocation->base : 0;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(to) = allocation ? allocation->bytes : 0;
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult pointer_get_attributes(unsigned count, CUpointer_attribute* asked, void** answers, CUdeviceptr address) {
  if (count == 0 || !asked || !answers) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = find(address, 1);
  for (unsigned i = 0; i < count; ++i)
    if (!answer(asked[i], answers[i], address, allocation)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // namespace fake
