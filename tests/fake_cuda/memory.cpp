#include "memory.hpp"

#include <sys/mman.h>

#include <map>
#include <utility>

#include "calls.hpp"
#include "context.hpp"
#include "faults.hpp"
#include "log.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace fake {
namespace {

std::map<unsigned long long, Allocation>& allocations() {
  static auto* by_base = new std::map<unsigned long long, Allocation>;
  return *by_base;
}

unsigned long long address_of(const void* pointer) { return reinterpret_cast<unsigned long long>(pointer); }
void unmap(const Allocation& allocation) { munmap(reinterpret_cast<void*>(allocation.base), allocation.bytes); }

/// Whether so many bytes more may be page-locked.
bool may_pin(size_t bytes) {
  unsigned long long pinned = 0;
  for (const auto& [base, allocation] : allocations())
    if (allocation.kind == Allocation::Kind::host || allocation.kind == Allocation::Kind::registered) pinned += allocation.bytes;
  return pinned + bytes <= settings().pinned_bytes;
}

}  // namespace

void* map_pages(size_t bytes, int flags) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return start == MAP_FAILED ? nullptr : start;
}

void remember(const Allocation& allocation) { allocations()[allocation.base] = allocation; }

std::optional<Allocation> forget(unsigned long long base, Allocation::Kind kind) {
  const std::lock_guard lock{world()};
  const auto found = allocations().find(base);
  if (found == allocations().end() || found->second.kind != kind) return {};
  const auto allocation = found->second;
  allocations().erase(found);
  return allocation;
}

unsigned long long move_pages(const Allocation& allocation, unsigned long long address, unsigned long long bytes, int to) {
  const std::lock_guard lock{world()};
  auto& where = *allocation.where;
  unsigned long long moved = 0;
  for (auto page = (address - allocation.base) / managed_page; page * managed_page < address - allocation.base + bytes; ++page)
    if (std::exchange(where[page], to) != to) moved += managed_page;
  return moved;
}

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
  if (allocation->kind == Allocation::Kind::managed) move_pages(*allocation, address_of(address), bytes, context->device);
  if (allocation->kind == Allocation::Kind::granted) {
    const std::lock_guard lock{world()};
    return allocation->granted->contains(context->device);
  }
  if (allocation->kind != Allocation::Kind::device || allocation->device == context->device) return true;
  const std::lock_guard lock{world()};
  for (const CUcontext peer : context->peers)
    if (peer->device == allocation->device) return true;
  return false;
}

unsigned long long allocated_on(CUdevice device) {
  const std::lock_guard lock{world()};
  unsigned long long bytes = granted_on(device);
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
  auto allocation = forget(pointer, Allocation::Kind::device);
  if (!allocation) allocation = forget(pointer, Allocation::Kind::managed);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  unmap(*allocation);
  return CUDA_SUCCESS;
}

CUresult mem_alloc_managed(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) return CUDA_ERROR_INVALID_VALUE;
  void* start = map_pages(bytes, MAP_NORESERVE);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock{world()};
  auto where = std::make_shared<std::vector<int>>((bytes + managed_page - 1) / managed_page, on_host);
  remember({Allocation::Kind::managed, address_of(start), bytes, 0, std::move(where)});
  *pointer = address_of(start);
  return CUDA_SUCCESS;
}

CUresult mem_prefetch_async(CUdeviceptr range, size_t bytes, CUmemLocation to, unsigned flags, CUstream handle) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const auto allocation = find(range, bytes);
  if (flags != 0 || bytes == 0 || !allocation || allocation->kind != Allocation::Kind::managed) return CUDA_ERROR_INVALID_VALUE;
  const bool to_gpu = to.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (to_gpu ? !is_device(to.id) : to.type != CU_MEM_LOCATION_TYPE_HOST && to.type != CU_MEM_LOCATION_TYPE_HOST_NUMA) return CUDA_ERROR_INVALID_DEVICE;
  stream->submit([=, context = current()] {
    if (lost() != CUDA_SUCCESS) return;
    const auto delivers = begin_copy();
    const auto moved = delivers == Delivers::nothing ? 0 : move_pages(*allocation, range, bytes, to_gpu ? to.id : on_host);
    if (delivers == Delivers::one_wrong_byte) reinterpret_cast<unsigned char*>(range)[bytes / 2] ^= 1;
    log("prefetch", context, (to_gpu ? "gpu " : "host ") + std::to_string(moved));
    end_copy();
  });
  return CUDA_SUCCESS;
}

CUresult mem_host_alloc(void** address, size_t bytes, unsigned flags) {
  constexpr unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0 || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock{world()};
  if (!may_pin(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  // Backed at once, under the caller's NUMA policy: that is what page-locking does.
  void* start = map_pages(bytes, MAP_POPULATE);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
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
  if (!may_pin(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
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
