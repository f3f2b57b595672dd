#include "memory.hpp"

#include <sys/mman.h>

#include <map>

#include "calls.hpp"
#include "context.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace fake {
namespace {

std::map<unsigned long long, Allocation>& allocations() {
  static auto* by_base = new std::map<unsigned long long, Allocation>;
  return *by_base;
}

/// Address space only: pages come when they are touched, so that a GPU may have more memory than this machine.
void* map_pages(size_t bytes, int flags) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return start == MAP_FAILED ? nullptr : start;
}

void remember(const Allocation& allocation) { allocations()[allocation.base] = allocation; }

/// Takes the allocation of a kind that begins here out of the books; nothing if there is none.
std::optional<Allocation> forget(unsigned long long base, Allocation::Kind kind) {
  const std::lock_guard lock{world()};
  const auto found = allocations().find(base);
  if (found == allocations().end() || found->second.kind != kind) return {};
  const auto allocation = found->second;
  allocations().erase(found);
  return allocation;
}

unsigned long long address_of(const void* pointer) { return reinterpret_cast<unsigned long long>(pointer); }
void unmap(const Allocation& allocation) { munmap(reinterpret_cast<void*>(allocation.base), allocation.bytes); }

}  // namespace

std::optional<Allocation> find(unsigned long long address, unsigned long long bytes) {
  const std::lock_guard lock{world()};
  auto after = allocations().upper_bound(address);
  if (after == allocations().begin()) return {};
  const auto& allocation = (--after)->second;
  if (address + bytes > allocation.base + allocation.bytes) return {};
  return allocation;
}

bool reachable(CUcontext context, const void* address, unsigned long long bytes) {
  const auto allocation = find(address, bytes);
  if (!allocation) return false;
  if (allocation->kind != Allocation::Kind::device || allocation->device == context->device) return true;
  const std::lock_guard lock{world()};
  for (const CUcontext peer : context->peers)
    if (peer->device == allocation->device) return true;
  return false;
}

unsigned long long allocated_on(CUdevice device) {
  const std::lock_guard lock{world()};
  unsigned long long bytes = 0;
  for (const auto& [base, allocation] : allocations())
    if (allocation.kind == Allocation::Kind::device && allocation.device == device) bytes += allocation.bytes;
  return bytes;
}

CUresult mem_get_info(size_t* free, size_t* total) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  *total = settings().memory_bytes;
  *free = *total - allocated_on(current()->device);
  return CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr* pointer, size_t bytes) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock{world()};
  if (bytes > settings().memory_bytes - allocated_on(current()->device)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* start = map_pages(bytes, MAP_NORESERVE);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  remember({Allocation::Kind::device, address_of(start), bytes, current()->device});
  *pointer = address_of(start);
  return CUDA_SUCCESS;
}

// Freeing waits for whatever may still use the memory, as the driver does.
CUresult mem_free(CUdeviceptr pointer) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pointer == 0) return CUDA_SUCCESS;
  drain(nullptr);
  const auto allocation = forget(pointer, Allocation::Kind::device);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  unmap(*allocation);
  return CUDA_SUCCESS;
}

CUresult mem_host_alloc(void** address, size_t bytes, unsigned flags) {
  constexpr unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0 || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  // Backed at once, under the caller's NUMA policy: that is what page-locking does.
  void* start = map_pages(bytes, MAP_POPULATE);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock{world()};
  remember({Allocation::Kind::host, address_of(start), bytes});
  *address = start;
  return CUDA_SUCCESS;
}

CUresult mem_free_host(void* address) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!address) return CUDA_SUCCESS;
  drain(nullptr);
  const auto allocation = forget(address_of(address), Allocation::Kind::host);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  unmap(*allocation);
  return CUDA_SUCCESS;
}

CUresult mem_host_register(void* address, size_t bytes, unsigned flags) {
  constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!address || bytes == 0 || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock{world()};
  const auto base = address_of(address);
  for (const auto& [begin, allocation] : allocations())
    if (begin < base + bytes && base < begin + allocation.bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  remember({Allocation::Kind::registered, base, bytes});
  return CUDA_SUCCESS;
}

CUresult mem_host_unregister(void* address) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  drain(nullptr);
  return forget(address_of(address), Allocation::Kind::registered) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult mem_host_get_device_pointer(CUdeviceptr* pointer, void* address, unsigned flags) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto allocation = find(address, 1);
  if (flags != 0 || !allocation || allocation->kind == Allocation::Kind::device) return CUDA_ERROR_INVALID_VALUE;
  *pointer = address_of(address);
  return CUDA_SUCCESS;
}

}  // namespace fake
