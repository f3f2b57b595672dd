#include "platform/cuda/allocation.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "program/allocation.hpp"

namespace linkscope {

std::vector<const char*> symbols_of(MemKind kind) {
  const auto& traits = traits_of(kind);
  if (traits.registered) return {"cuMemHostRegister", "cuMemHostUnregister"};
  if (traits.by_vmm) {
    std::vector symbols{"cuMemGetAllocationGranularity",
                        "cuMemCreate",
                        "cuMemRelease",
                        "cuMemAddressReserve",
                        "cuMemAddressFree",
                        "cuMemMap",
                        "cuMemUnmap",
                        "cuMemSetAccess"};
    if (traits.shared)
      symbols.insert(symbols.end(), {"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"});
    return symbols;
  }
  if (kind == MemKind::pool)
    return {"cuMemAllocAsync",       "cuMemFreeAsync",     "cuDeviceGetDefaultMemPool",
            "cuMemPoolSetAttribute", "cuMemPoolSetAccess", "cuMemPoolTrimTo"};
  if (kind == MemKind::ipc) return {"cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle"};
  return {};
}

Allocation::Allocation(const Driver& driver, Device* device, const Region& region, u64 bytes, bool own)
    : driver_{driver}, device_{device}, region_{region}, bytes_{bytes}, own_{own} {}

Allocation::~Allocation() {
  if (device_ && driver_.cuCtxSetCurrent(device_->context()) != CUDA_SUCCESS) return;  // the driver is shutting down
  try {
    give_back();
    // frees what the pool still keeps
    if (region_.kind == MemKind::pool) LINKSCOPE_CU(driver_, cuMemPoolTrimTo, pool(), 0);
  } catch (const Error&) {  // no one is left to report to: the process ends, or has a reason already
  }
}

void Allocation::make() {
  if (device_) device_->use();
  if (is_shared(region_.kind)) return make_shared();
  allocate();
  if (region_.kind == MemKind::vmm) map();
  // The pages of all other driver memory exist after allocation.
  if (pages_.data()) pages_.back(false);
  if (device_ && traits_of(region_.kind).registered) pin();
  if (pinned_memory_.data()) map();
  touched_ = true;
}

void Allocation::advance(std::string_view phase) {
  if (device_) device_->use();
  if (phase == "allocate" || phase == "grow") allocate();
  else if (phase == "map") map();
  else if (phase == "touch") touch();
  else if (phase == "register") pin();
  else if (phase == "unregister") unpin();
  else if (phase == "unmap") unmap();
  else if (phase == "export") share();
  else if (phase == "import") import();
  else if (phase == "open") open();
  else if (phase == "close") close();
  else give_back();
}

void Allocation::bring_to(std::string_view phase) {
  if (device_) device_->use();
  const auto phases = phases_of(region_.kind);
  give_back();
  if (phase == "grow") LINKSCOPE_CU(driver_, cuMemPoolTrimTo, pool(), 0);
  for (std::size_t i = 0; i < phase_index(region_.kind, phase); ++i) advance(phases[i]);
}

template <class Call>
void Allocation::of_driver(Call call) const {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    const auto* cure = region_.at.kind == PlaceKind::gpu
                           ? "; end other processes that hold memory of this GPU, or choose smaller sizes (--sizes)"
                           : "; free host memory, raise the limit on pinned memory (ulimit -l, or the container's), or "
                             "choose smaller sizes (--sizes)";
    throw Error{ErrorKind::memory, "no " + bytes_text(bytes_) + " of " + to_string(region_.kind) + " memory left on " +
                                       to_string(region_.at) + ": " + error.what() + cure};
  }
}

void Allocation::allocate_by_flags(unsigned flags) {
  const NodePolicy policy{node_of_region()};
  of_driver([&] { pinned_memory_ = {driver_, bytes_, flags}; });
  host_ = pinned_memory_.data();
}

void Allocation::allocate() {
  if (is_shared(region_.kind)) return of_driver([&] { allocate_to_share(); });
  switch (region_.kind) {
    case MemKind::device:
      of_driver([&] { memory_ = {driver_, bytes_}; });
      address_ = memory_.address();
      return;
    case MemKind::managed:
      of_driver([&] { memory_ = DeviceMemory::managed(driver_, bytes_); });
      address_ = memory_.address();
      return;
    case MemKind::pool: {
      u64 all = ~u64{0};  // a pool keeps freed memory by design
      LINKSCOPE_CU(driver_, cuMemPoolSetAttribute, pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
      const auto& stream = device_->stream(0);
      return of_driver([&] {
        LINKSCOPE_CU(driver_, cuMemAllocAsync, &address_, bytes_, stream.get());
        stream.synchronize();
      });
    }
    case MemKind::vmm: {
      const auto prop = on_device(device_->facts().handle);
      reserved_ = whole_granules(driver_, prop, bytes_);
      return of_driver([&] { physical_ = {driver_, prop, reserved_}; });
    }
    case MemKind::wc:
      return allocate_by_flags(CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    case MemKind::mapped:
      return allocate_by_flags(CU_MEMHOSTALLOC_DEVICEMAP);
    case MemKind::pinned:
      if (device_) return allocate_by_flags(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
      break;
    case MemKind::
        system:  // one address for all processors; pages of a GPU's region begin on the first node and are sent there
      pages_ = HostPages{region_.at.kind == PlaceKind::numa ? region_.at.index : 0, bytes_, {}};
      address_ = reinterpret_cast<CUdeviceptr>(pages_.data());
      return;
    case MemKind::file:
      file_ = ScratchFile{region_.at.path, bytes_};
      host_ = file_.data();
      return;
    default:
      break;
  }
  pages_ = HostPages{node_of_region(), bytes_, pages_of_region()};
  host_ = pages_.data();
  // Without a GPU that could pin it, the kernel locks the pages, which is equivalent for a CPU thread.
  if (region_.kind == MemKind::pinned && mlock(host_, bytes_) != 0)
    throw Error{ErrorKind::memory, "locking " + bytes_text(bytes_) + " in memory of " + to_string(region_.at) +
                                       " failed (" + std::strerror(errno) + "); raise the limit with 'ulimit -l'"};
}

u32 Allocation::node_of_region() const { return region_.bound ? region_.at.index : any_node; }

PageSize Allocation::pages_of_region() const {
  const bool huge = traits_of(region_.kind).huge_pages;
  return huge ? PageSize{region_.page_bytes ? region_.page_bytes : u64{2} << 20, region_.transparent} : PageSize{};
}

void Allocation::map() {
  if (!traits_of(region_.kind).by_vmm) {
    address_ = mapped_address(driver_, host_);
    return;
  }
  mapping_ = std::make_unique<Mapping>(driver_, physical_, reserved_, device_->facts().handle);
  address_ = mapping_->address();
}

void Allocation::grant(const Device& other) {
  if ((!mapping_ && region_.kind != MemKind::pool) || &other == device_ ||
      !granted_.insert(other.facts().handle).second)
    return;
  device_->use();
  if (mapping_) return mapping_->allow(other.facts().handle);
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {other.facts().handle}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  LINKSCOPE_CU(driver_, cuMemPoolSetAccess, pool(), &access, 1);
}

void Allocation::touch() {
  touched_ = true;
  if (region_.kind == MemKind::shm) return shared_pages_.touch();
  if (pages_.data()) return pages_.back(true);
  if (host_) {
    const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE));
    for (u64 at = 0; at < bytes_; at += page) static_cast<volatile std::byte*>(host_)[at] = std::byte{1};
    return;
  }
  const auto& stream = device_->stream(0);
  LINKSCOPE_CU(driver_, cuMemsetD8Async, address_, 1, bytes_, stream.get());
  stream.synchronize();
}

void Allocation::pin() {
  of_driver([&] {
    LINKSCOPE_CU(driver_, cuMemHostRegister, host_, bytes_, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  });
  pinned_ = true;
  address_ = mapped_address(driver_, host_);
}

void Allocation::unpin() {
  if (!std::exchange(pinned_, false)) return;
  address_ = 0;
  LINKSCOPE_CU(driver_, cuMemHostUnregister, host_);
}

void Allocation::unmap() {
  address_ = 0;
  granted_.clear();
  if (const auto gone = std::exchange(mapping_, nullptr)) gone->unmap();
  if (region_.kind == MemKind::posix_fd) physical_.release();
}

void Allocation::give_back() {
  touched_ = false;
  if (is_shared(region_.kind)) return give_back_shared();
  switch (region_.kind) {
    case MemKind::device:
    case MemKind::managed:
      address_ = 0;
      return memory_.free();
    case MemKind::pool: {
      if (!address_) return;
      const auto& stream = device_->stream(0);
      LINKSCOPE_CU(driver_, cuMemFreeAsync, std::exchange(address_, 0), stream.get());
      stream.synchronize();
      return;
    }
    case MemKind::vmm:
      unmap();
      return physical_.release();
    case MemKind::file:
      host_ = nullptr;
      file_ = ScratchFile{};
      return;
    default:
      break;
  }
  if (pages_.data()) {
    unpin();
    pages_ = HostPages{};
  } else {
    host_ = nullptr;
    pinned_memory_.free();
  }
  host_ = nullptr;
  address_ = 0;
}

std::string Allocation::page_size() const {
  return pages_of_region().bytes && pages_.data() && touched_ ? pages_.check_size() : "";
}

CUmemoryPool Allocation::pool() const {
  CUmemoryPool pool = nullptr;
  LINKSCOPE_CU(driver_, cuDeviceGetDefaultMemPool, &pool, device_->facts().handle);
  return pool;
}

}  // namespace linkscope
