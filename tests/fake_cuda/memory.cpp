#include "memory.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "captures.hpp"
#include "context.hpp"
#include "faults.hpp"
#include "host/shared_file.hpp"
#include "leaks.hpp"
#include "log.hpp"
#include "settings.hpp"
#include "sharing.hpp"
#include "stream.hpp"

namespace fake {
namespace {

std::map<unsigned long long, Allocation>& allocations() {
  static auto* by_base = new std::map<unsigned long long, Allocation>;
  return *by_base;
}

/// Memory of GPUs that was freed, by its first address.
std::map<unsigned long long, unsigned long long>& freed() {
  static auto* ranges = new std::map<unsigned long long, unsigned long long>;
  return *ranges;
}

void unmap(const Allocation& allocation) {
  munmap(reinterpret_cast<void*>(allocation.base), allocation.bytes);
  if (allocation.descriptor >= 0) close(allocation.descriptor);
}

/// True if `bytes` more may be page-locked.
bool may_pin(size_t bytes) {
  unsigned long long pinned = 0;
  for (const auto& [base, allocation] : allocations())
    if (allocation.kind == Allocation::Kind::host || allocation.kind == Allocation::Kind::registered)
      pinned += allocation.bytes;
  return pinned + bytes <= settings().pinned_bytes;
}

/// False if a page of the range is past the end of the file that it maps, as pinning finds out.
bool has_pages(unsigned long long base, size_t bytes) {
#ifdef MADV_POPULATE_READ
  const auto page = static_cast<unsigned long long>(sysconf(_SC_PAGESIZE)), first = base / page * page;
  return madvise(reinterpret_cast<void*>(first), base + bytes - first, MADV_POPULATE_READ) == 0 || errno != EFAULT;
#else
  return base + bytes > base;
#endif
}

/// False if the kernel refuses to write the first byte, which keeps its value.
bool is_writable(void* address) {
  char kept = 0;
  const iovec here{&kept, 1}, there{address, 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1 ||
         process_vm_writev(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

}  // namespace

void* map_pages(size_t bytes, int flags) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return start == MAP_FAILED ? nullptr : start;
}

void remember(const Allocation& allocation) { allocations()[allocation.base] = allocation; }

std::optional<Allocation> forget(unsigned long long base, Allocation::Kind kind) {
  const std::lock_guard lock{global_mutex()};
  const auto found = allocations().find(base);
  if (found == allocations().end() || found->second.kind != kind) return {};
  const auto allocation = found->second;
  allocations().erase(found);
  return allocation;
}

unsigned long long move_pages(const Allocation& allocation, unsigned long long address, unsigned long long bytes,
                              int to) {
  const std::lock_guard lock{global_mutex()};
  auto& where = *allocation.where;
  unsigned long long moved = 0;
  for (auto page = (address - allocation.base) / managed_page; page * managed_page < address - allocation.base + bytes;
       ++page)
    if (std::exchange(where[page], to) != to) moved += managed_page;
  return moved;
}

std::optional<Allocation> find(unsigned long long address, unsigned long long bytes) {
  const std::lock_guard lock{global_mutex()};
  auto after = allocations().upper_bound(address);
  if (after == allocations().begin()) return {};
  const auto& allocation = (--after)->second;
  const unsigned long long into = address - allocation.base;
  if (into > allocation.bytes || bytes > allocation.bytes - into) return {};
  return allocation;
}

bool was_freed(unsigned long long address) {
  const std::lock_guard lock{global_mutex()};
  const auto after = freed().upper_bound(address);
  if (after == freed().begin()) return false;
  const auto& [base, bytes] = *std::prev(after);
  unsigned char there = 0;
  const auto page = static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
  return address < base + bytes && mincore(reinterpret_cast<void*>(address / page * page), page, &there) != 0;
}

void count_memory(LeakCounts& counts) {
  constexpr const char* names[] = {
      "device memory", "host memory", "registered memory", "managed memory", "memory of pools and mappings",
      "opened memory"};
  for (const auto& [base, allocation] : allocations()) ++counts[names[static_cast<int>(allocation.kind)]];
}

bool reachable(CUcontext context, const void* address, unsigned long long bytes) {
  const auto allocation = find(address, bytes);
  if (!allocation) return settings().hmm;
  if (allocation->kind == Allocation::Kind::managed && !allocation->advised->stays_for(context->device))
    move_pages(*allocation, address_of(address), bytes, context->device);
  if (allocation->kind == Allocation::Kind::granted) {
    const std::lock_guard lock{global_mutex()};
    return allocation->granted->contains(context->device);
  }
  if (allocation->kind == Allocation::Kind::opened) return allocation->by == context->device;
  if (!allocation->of_gpu() || allocation->device == context->device) return true;
  const std::lock_guard lock{global_mutex()};
  for (const CUcontext peer : context->peers)
    if (peer->device == allocation->device) return true;
  return false;
}

unsigned long long allocated_on(CUdevice device) {
  const std::lock_guard lock{global_mutex()};
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
  const std::lock_guard lock{global_mutex()};
  if (bytes > settings().memory_bytes - allocated_on(current()->device)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int descriptor = make_backing(bytes, current()->device);
  void* start = descriptor < 0 ? nullptr : map_backing(0, bytes, descriptor, false);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation made{Allocation::Kind::device, address_of(start), bytes, current()->device};
  made.descriptor = descriptor;
  remember(made);
  *pointer = address_of(start);
  return CUDA_SUCCESS;
}

// Like the driver, freeing waits for all queued work, which may still use the memory.
CUresult mem_free(CUdeviceptr pointer) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pointer == 0) return CUDA_SUCCESS;
  drain(nullptr);
  auto allocation = forget(pointer, Allocation::Kind::device);
  if (!allocation) allocation = forget(pointer, Allocation::Kind::managed);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  unmap(*allocation);
  const std::lock_guard lock{global_mutex()};
  freed()[allocation->base] = allocation->bytes;
  return CUDA_SUCCESS;
}

CUresult mem_alloc_managed(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) return CUDA_ERROR_INVALID_VALUE;
  void* start = map_pages(bytes, MAP_NORESERVE);
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock{global_mutex()};
  auto where = std::make_shared<std::vector<int>>((bytes + managed_page - 1) / managed_page, on_host);
  remember({Allocation::Kind::managed, address_of(start), bytes, 0, std::move(where), std::make_shared<Advised>()});
  *pointer = address_of(start);
  return CUDA_SUCCESS;
}

namespace {

bool is_place(const CUmemLocation& at) {
  if (at.type == CU_MEM_LOCATION_TYPE_DEVICE) return is_device(at.id);
  return at.type == CU_MEM_LOCATION_TYPE_HOST || at.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/// True if the pages of the range can move: managed memory, or any memory if GPUs reach system memory (HMM).
bool can_move(unsigned long long range, unsigned long long bytes) {
  const auto allocation = find(range, bytes);
  return bytes > 0 && (allocation ? allocation->kind == Allocation::Kind::managed : settings().hmm);
}

void prefetch_now(CUcontext context, unsigned long long range, unsigned long long bytes, const CUmemLocation& to) {
  if (lost() != CUDA_SUCCESS) return;
  const bool to_gpu = to.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const auto allocation = find(range, bytes);
  const auto delivers = begin_copy();
  const auto moved = delivers == Delivers::nothing || !allocation
                         ? 0
                         : move_pages(*allocation, range, bytes, to_gpu ? to.id : on_host);
  if (delivers == Delivers::one_wrong_byte) reinterpret_cast<unsigned char*>(range)[bytes / 2] ^= 1;
  log("prefetch", context, (to_gpu ? "gpu " : "host ") + std::to_string(moved));
  end_copy();
}

struct Piece {
  unsigned long long start, bytes;
};

CUresult pieces_of(const CUdeviceptr* starts, const size_t* lengths, size_t count, std::vector<Piece>& pieces) {
  if (!starts || !lengths || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (!can_move(starts[i], lengths[i])) return CUDA_ERROR_INVALID_VALUE;
    pieces.push_back({starts[i], lengths[i]});
  }
  return CUDA_SUCCESS;
}

/// Overwrites discarded pages, because no program may rely on their content.
void discard_now(CUcontext context, const std::vector<Piece>& pieces) {
  if (lost() != CUDA_SUCCESS) return;
  unsigned long long bytes = 0;
  for (const auto& piece : pieces) {
    std::memset(reinterpret_cast<void*>(piece.start), 0xDD, piece.bytes);
    bytes += piece.bytes;
  }
  log("discard", context, std::to_string(pieces.size()) + " " + std::to_string(bytes));
}

CUresult queue_pieces(bool discards, CUdeviceptr* starts, size_t* lengths, size_t count, CUmemLocation* places,
                      size_t* firsts, size_t place_count, unsigned long long flags, CUstream handle) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<Piece> pieces;
  if (flags != 0 || !places || !firsts || place_count == 0 || place_count > count || firsts[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const auto status = pieces_of(starts, lengths, count, pieces); status != CUDA_SUCCESS) return status;
  std::vector<CUmemLocation> to;
  for (size_t i = 0, place = 0; i < count; ++i) {
    while (place + 1 < place_count && firsts[place + 1] <= i) ++place;
    if (!is_place(places[place])) return CUDA_ERROR_INVALID_DEVICE;
    to.push_back(places[place]);
  }
  stream->submit([=, context = current()] {
    if (discards) discard_now(context, pieces);
    for (size_t i = 0; i < pieces.size(); ++i) prefetch_now(context, pieces[i].start, pieces[i].bytes, to[i]);
  });
  return CUDA_SUCCESS;
}

}  // namespace

CUresult mem_prefetch_async(CUdeviceptr range, size_t bytes, CUmemLocation to, unsigned flags, CUstream handle) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0 || !can_move(range, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_place(to)) return CUDA_ERROR_INVALID_DEVICE;
  stream->submit([=, context = current()] { prefetch_now(context, range, bytes, to); });
  return CUDA_SUCCESS;
}

CUresult mem_prefetch_batch_async(CUdeviceptr* starts, size_t* lengths, size_t count, CUmemLocation* places,
                                  size_t* firsts, size_t place_count, unsigned long long flags, CUstream stream) {
  return queue_pieces(false, starts, lengths, count, places, firsts, place_count, flags, stream);
}

CUresult mem_discard_and_prefetch_batch_async(CUdeviceptr* starts, size_t* lengths, size_t count, CUmemLocation* places,
                                              size_t* firsts, size_t place_count, unsigned long long flags,
                                              CUstream stream) {
  return queue_pieces(true, starts, lengths, count, places, firsts, place_count, flags, stream);
}

CUresult mem_discard_batch_async(CUdeviceptr* starts, size_t* lengths, size_t count, unsigned long long flags,
                                 CUstream handle) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<Piece> pieces;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const auto status = pieces_of(starts, lengths, count, pieces); status != CUDA_SUCCESS) return status;
  stream->submit([=, context = current()] { discard_now(context, pieces); });
  return CUDA_SUCCESS;
}

CUresult mem_advise(CUdeviceptr range, size_t bytes, CUmem_advise advice, CUmemLocation at) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto allocation = find(range, bytes);
  if (!can_move(range, bytes) || !allocation) return CUDA_ERROR_INVALID_VALUE;
  const bool accessed = advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (!is_place(at) || (accessed && at.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)) return CUDA_ERROR_INVALID_DEVICE;
  const int place = at.type == CU_MEM_LOCATION_TYPE_DEVICE ? at.id : on_host;
  auto& advised = *allocation->advised;
  const char* words = nullptr;
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      advised.mostly_read = true;
      words = "set read_mostly";
      break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      advised.mostly_read = false;
      words = "unset read_mostly";
      break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      advised.preferred = place;
      words = "set preferred";
      break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      advised.preferred.reset();
      words = "unset preferred";
      break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      advised.accessed_by.insert(place);
      words = "set accessed_by";
      break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      advised.accessed_by.erase(place);
      words = "unset accessed_by";
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const auto where = at.type == CU_MEM_LOCATION_TYPE_HOST
                         ? std::string{" host"}
                         : (at.type == CU_MEM_LOCATION_TYPE_DEVICE ? " gpu:" : " node:") + std::to_string(at.id);
  log("advise", current(), words + where);
  return CUDA_SUCCESS;
}

CUresult mem_host_alloc(void** address, size_t bytes, unsigned flags) {
  constexpr unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0 || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = unsafe_during_capture(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock{global_mutex()};
  if (!may_pin(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  // Page-locking backs the pages immediately, by the caller's NUMA policy.
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
  constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!address || bytes == 0 || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = unsafe_during_capture(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock{global_mutex()};
  const auto base = address_of(address);
  for (const auto& [begin, allocation] : allocations())
    if (begin < base + bytes && base < begin + allocation.bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (!may_pin(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool is_read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
  if (is_read_only ? !has_pages(base, bytes) : !is_writable(address) || !linkscope::shared_file(address, bytes).empty())
    return CUDA_ERROR_INVALID_VALUE;
  Allocation registered{Allocation::Kind::registered, base, bytes};
  registered.is_read_only = is_read_only;
  remember(registered);
  return CUDA_SUCCESS;
}

CUresult mem_host_unregister(void* address) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  drain(nullptr);
  return forget(address_of(address), Allocation::Kind::registered) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult mem_host_get_device_pointer(CUdeviceptr* pointer, void* address, unsigned flags) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto allocation = find(address, 1);
  if (flags != 0 || !allocation || allocation->of_gpu()) return CUDA_ERROR_INVALID_VALUE;
  *pointer = address_of(address);
  return CUDA_SUCCESS;
}

}  // namespace fake
