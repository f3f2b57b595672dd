// GPU memory with access granted per GPU: stream-ordered pools and virtual memory. A pool keeps freed memory up to its
// threshold. Memory is counted at creation, not at mapping.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "calls.hpp"
#include "context.hpp"
#include "leaks.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "sharing.hpp"
#include "stream.hpp"

struct CUmemPoolHandle_st {
  CUdevice device = 0;
  unsigned long long threshold = 0, used = 0;
  std::shared_ptr<std::set<int>> granted;
  std::vector<fake::Allocation> kept;
};

namespace fake {
namespace {

constexpr size_t granule = size_t{2} << 20;

struct Made {  // by cuMemCreate
  CUdevice device = 0;
  unsigned long long bytes = 0;
  bool mapped = false, released = false;
  int descriptor = -1;    // of the file that holds it, if it can be exported
  bool imported = false;  // from another process
};

std::map<CUdevice, CUmemPoolHandle_st>& pools() {
  static auto* by_device = new std::map<CUdevice, CUmemPoolHandle_st>;
  return *by_device;
}
std::map<CUmemGenericAllocationHandle, Made>& handles() {
  static auto* by_handle = new std::map<CUmemGenericAllocationHandle, Made>;
  return *by_handle;
}
std::map<unsigned long long, unsigned long long>& reserved() {  // bytes by start address
  static auto* ranges = new std::map<unsigned long long, unsigned long long>;
  return *ranges;
}
std::map<unsigned long long, CUmemGenericAllocationHandle>& mapped() {  // handles by address
  static auto* ranges = new std::map<unsigned long long, CUmemGenericAllocationHandle>;
  return *ranges;
}

CUmemPoolHandle_st& pool_of(CUdevice device) {
  auto& pool = pools()[device];
  pool.device = device;
  if (!pool.granted) pool.granted = std::make_shared<std::set<int>>(std::set<int>{device});
  return pool;
}

CUmemPoolHandle_st* found(CUmemoryPool wanted) {
  for (auto& [device, pool] : pools())
    if (&pool == wanted) return &pool;
  return nullptr;
}

unsigned long long kept_bytes(const CUmemPoolHandle_st& pool) {
  unsigned long long bytes = 0;
  for (const auto& one : pool.kept) bytes += one.bytes;
  return bytes;
}

void trim(CUmemPoolHandle_st& pool, unsigned long long keep) {
  while (!pool.kept.empty() && pool.used + kept_bytes(pool) > keep) {
    munmap(reinterpret_cast<void*>(pool.kept.back().base), pool.kept.back().bytes);
    pool.kept.pop_back();
  }
}

CUmemGenericAllocationHandle next_handle() {
  static CUmemGenericAllocationHandle next = 1;
  return next++;
}

void erase(CUmemGenericAllocationHandle handle) {
  if (const int descriptor = handles()[handle].descriptor; descriptor >= 0) close(descriptor);
  handles().erase(handle);
}

bool one_gpu(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && is_device(location.id);
}

}  // namespace

void count_granted(LeakCounts& counts) {
  for (const auto& [device, pool] : pools()) counts["bytes kept by pools"] += kept_bytes(pool);
  counts["made by cuMemCreate"] += handles().size();
  counts["ranges of addresses"] += reserved().size();
}

unsigned long long granted_on(CUdevice device) {
  unsigned long long bytes = 0;
  if (const auto pool = pools().find(device); pool != pools().end())
    bytes += pool->second.used + kept_bytes(pool->second);
  for (const auto& [handle, made] : handles())
    if (made.device == device && !made.imported) bytes += made.bytes;
  return bytes;
}

CUresult device_get_default_mem_pool(CUmemoryPool* pool, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock{global_mutex()};
  *pool = &pool_of(device);
  return CUDA_SUCCESS;
}

CUresult mem_pool_set_attribute(CUmemoryPool wanted, CUmemPool_attribute attribute, void* value) {
  const std::lock_guard lock{global_mutex()};
  auto* pool = found(wanted);
  if (!pool || !value || attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_ERROR_INVALID_VALUE;
  pool->threshold = *static_cast<cuuint64_t*>(value);
  return CUDA_SUCCESS;
}

CUresult mem_pool_set_access(CUmemoryPool wanted, const CUmemAccessDesc* access, size_t count) {
  const std::lock_guard lock{global_mutex()};
  auto* pool = found(wanted);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (!one_gpu(access[i].location)) return CUDA_ERROR_INVALID_DEVICE;
    if (access[i].location.id != pool->device && settings().no_peer) return CUDA_ERROR_INVALID_DEVICE;
    if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) pool->granted->insert(access[i].location.id);
  }
  return CUDA_SUCCESS;
}

CUresult mem_pool_trim_to(CUmemoryPool wanted, size_t keep) {
  const std::lock_guard lock{global_mutex()};
  auto* pool = found(wanted);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  trim(*pool, keep);
  return CUDA_SUCCESS;
}

CUresult mem_alloc_async(CUdeviceptr* pointer, size_t bytes, CUstream handle) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stream_of(handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock{global_mutex()};
  auto& pool = pool_of(current()->device);
  const auto fits =
      std::find_if(pool.kept.begin(), pool.kept.end(), [&](const Allocation& one) { return one.bytes == bytes; });
  if (fits != pool.kept.end()) {
    *pointer = fits->base;
    remember(*fits);
    pool.kept.erase(fits);
  } else {
    void* start =
        bytes > settings().memory_bytes - allocated_on(pool.device) ? nullptr : map_pages(bytes, MAP_NORESERVE);
    if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = reinterpret_cast<CUdeviceptr>(start);
    remember({Allocation::Kind::granted, *pointer, bytes, pool.device, nullptr, nullptr, pool.granted});
  }
  pool.used += bytes;
  return CUDA_SUCCESS;
}

CUresult mem_free_async(CUdeviceptr pointer, CUstream handle) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const auto allocation = forget(pointer, Allocation::Kind::granted);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  stream->submit([allocation = *allocation] {
    const std::lock_guard lock{global_mutex()};
    auto& pool = pool_of(allocation.device);
    pool.used -= allocation.bytes;
    pool.kept.push_back(allocation);
    trim(pool, pool.threshold);
  });
  return CUDA_SUCCESS;
}

CUresult mem_get_allocation_granularity(size_t* bytes, const CUmemAllocationProp* prop,
                                        CUmemAllocationGranularity_flags) {
  if (!prop || !one_gpu(prop->location)) return CUDA_ERROR_INVALID_VALUE;
  *bytes = granule;
  return CUDA_SUCCESS;
}

CUresult mem_create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                    unsigned long long flags) {
  if (!prop || !one_gpu(prop->location) || flags != 0 || bytes == 0 || bytes % granule) return CUDA_ERROR_INVALID_VALUE;
  const bool exportable = prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!exportable && prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  if (exportable && settings().no_posix_fd) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock{global_mutex()};
  if (bytes > settings().memory_bytes - allocated_on(prop->location.id)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = next_handle();
  handles()[*handle] = {prop->location.id, bytes};
  if (exportable) handles()[*handle].descriptor = make_backing(bytes, prop->location.id);
  return CUDA_SUCCESS;
}

CUresult mem_export_to_shareable_handle(void* exported, CUmemGenericAllocationHandle handle,
                                        CUmemAllocationHandleType type, unsigned long long flags) {
  const std::lock_guard lock{global_mutex()};
  const auto made = handles().find(handle);
  if (!exported || made == handles().end() || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      made->second.descriptor < 0)
    return CUDA_ERROR_INVALID_VALUE;
  const int descriptor = fcntl(made->second.descriptor, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(exported) = descriptor;
  return CUDA_SUCCESS;
}

CUresult mem_import_from_shareable_handle(CUmemGenericAllocationHandle* handle, void* exported,
                                          CUmemAllocationHandleType type) {
  const auto descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(exported));
  const auto backing = backing_of(descriptor);
  if (!handle || !backing || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !is_device(backing->device))
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock{global_mutex()};
  *handle = next_handle();
  handles()[*handle] = {backing->device, backing->bytes};
  handles()[*handle].descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  handles()[*handle].imported = true;
  return CUDA_SUCCESS;
}

CUresult mem_release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock{global_mutex()};
  const auto made = handles().find(handle);
  if (made == handles().end() || made->second.released) return CUDA_ERROR_INVALID_VALUE;
  made->second.released = true;
  if (!made->second.mapped) erase(handle);
  return CUDA_SUCCESS;
}

CUresult mem_address_reserve(CUdeviceptr* pointer, size_t bytes, size_t, CUdeviceptr, unsigned long long flags) {
  if (bytes == 0 || bytes % granule || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  void* start = map_pages(bytes, MAP_NORESERVE);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock{global_mutex()};
  *pointer = reinterpret_cast<CUdeviceptr>(start);
  reserved()[*pointer] = bytes;
  return CUDA_SUCCESS;
}

CUresult mem_address_free(CUdeviceptr pointer, size_t bytes) {
  const std::lock_guard lock{global_mutex()};
  const auto range = reserved().find(pointer);
  if (range == reserved().end() || range->second != bytes || mapped().contains(pointer))
    return CUDA_ERROR_INVALID_VALUE;
  reserved().erase(range);
  munmap(reinterpret_cast<void*>(pointer), bytes);
  return CUDA_SUCCESS;
}

CUresult mem_map(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags) {
  const std::lock_guard lock{global_mutex()};
  const auto range = reserved().find(pointer);
  const auto made = handles().find(handle);
  if (range == reserved().end() || made == handles().end() || offset != 0 || flags != 0 || bytes != range->second ||
      bytes != made->second.bytes || made->second.mapped)
    return CUDA_ERROR_INVALID_VALUE;
  if (made->second.descriptor >= 0 && !map_backing(pointer, bytes, made->second.descriptor, made->second.imported))
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->second.mapped = true;
  mapped()[pointer] = handle;
  remember({Allocation::Kind::granted, pointer, bytes, made->second.device, nullptr, nullptr,
            std::make_shared<std::set<int>>()});
  return CUDA_SUCCESS;
}

CUresult mem_unmap(CUdeviceptr pointer, size_t bytes) {
  drain(nullptr);
  const std::lock_guard lock{global_mutex()};
  const auto at = mapped().find(pointer);
  if (at == mapped().end() || reserved()[pointer] != bytes || !forget(pointer, Allocation::Kind::granted))
    return CUDA_ERROR_INVALID_VALUE;
  auto& made = handles()[at->second];
  made.mapped = false;
  if (made.descriptor >= 0)
    mmap(reinterpret_cast<void*>(pointer), bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (made.released) erase(at->second);
  mapped().erase(at);
  return CUDA_SUCCESS;
}

CUresult mem_set_access(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  const auto allocation = find(pointer, bytes);
  if (!allocation || allocation->kind != Allocation::Kind::granted) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock{global_mutex()};
  for (size_t i = 0; i < count; ++i) {
    if (!one_gpu(access[i].location)) return CUDA_ERROR_INVALID_DEVICE;
    if (access[i].location.id != allocation->device && settings().no_peer) return CUDA_ERROR_INVALID_DEVICE;
    allocation->granted->insert(access[i].location.id);
  }
  return CUDA_SUCCESS;
}

}  // namespace fake
