#include "platform/cuda/buffers.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "platform/host/contents.hpp"
#include "program/chain.hpp"

namespace linkscope {

Buffer::Buffer(const Driver& driver, Device* device, const Region& region, u64 bytes)
    : driver_{driver}, device_{device}, kind_{region.kind}, bytes_{bytes} {
  if (device_) device_->use();
  switch (region.kind) {
    case MemKind::device: LINKSCOPE_CU(driver_, cuMemAlloc, &address_, bytes_); return;
    case MemKind::managed: LINKSCOPE_CU(driver_, cuMemAllocManaged, &address_, bytes_, CU_MEM_ATTACH_GLOBAL); return;
    case MemKind::pageable: allocate_host(region); return;
    case MemKind::system:  // by the same address for everybody; of a GPU's, pages begin on the first node and are sent there
      pages_ = HostPages{region.at.kind == PlaceKind::numa ? region.at.index : 0, bytes_};
      address_ = reinterpret_cast<CUdeviceptr>(pages_.data());
      return;
    case MemKind::registered: allocate_host(region); pin(); return;
    case MemKind::pinned:
      if (device_) {
        const NodePolicy policy{region.at.index};
        void* start = nullptr;
        LINKSCOPE_CU(driver_, cuMemHostAlloc, &start, bytes_, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
        host_ = static_cast<std::byte*>(start);
        driver_owns_ = true;
        LINKSCOPE_CU(driver_, cuMemHostGetDevicePointer, &address_, host_, 0);
      } else {
        // No GPU that could pin it: page-locked by the kernel is what remains, and is the same to a CPU thread.
        allocate_host(region);
        if (mlock(host_, bytes_) != 0)
          throw Error{ErrorKind::memory, "locking " + std::to_string(bytes_) + " B in memory was refused (" + std::strerror(errno) +
                                             "); raise the limit with 'ulimit -l'"};
      }
      return;
    default: throw Error{ErrorKind::usage, std::string{to_string(region.kind)} + " memory cannot be allocated here"};
  }
}

Buffer::~Buffer() {
  if (device_ && driver_.cuCtxSetCurrent(device_->context()) != CUDA_SUCCESS) return;  // the driver is going down
  if ((kind_ == MemKind::device || kind_ == MemKind::managed) && address_) driver_.cuMemFree(address_);
  if (driver_owns_) driver_.cuMemFreeHost(host_);
  if (registered_) driver_.cuMemHostUnregister(host_);
}

void Buffer::allocate_host(const Region& region) {
  pages_ = HostPages{region.at.index, bytes_};
  host_ = pages_.data();
}

void Buffer::pin() {
  LINKSCOPE_CU(driver_, cuMemHostRegister, host_, bytes_, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  registered_ = true;
  LINKSCOPE_CU(driver_, cuMemHostGetDevicePointer, &address_, host_, 0);
}

void Buffer::fill_with_pattern(u64 seed) {
  seed_ = seed;
  if (!reachable()) return fill_pattern(host_, bytes_, seed);
  u64 words = bytes_ / 8, first = 0;
  void* arguments[] = {&address_, &words, &seed, &first};
  device_->use();
  const auto& stream = device_->stream(0);
  device_->launch(device_->function("pattern", "linkscope_fill"), 1024, 256, stream.get(), arguments);
  stream.synchronize();
}

void Buffer::fill_with(std::byte with, u64 bytes) {
  if (!reachable()) return linkscope::fill(host_, std::min(bytes, bytes_), with);
  device_->use();
  const auto& stream = device_->stream(0);
  LINKSCOPE_CU(driver_, cuMemsetD8Async, address_, static_cast<unsigned char>(with), std::min(bytes, bytes_), stream.get());
  stream.synchronize();
}

void Buffer::fill_with_chain(u64 bytes) {
  u64 lines = bytes / linkscope_chain_line;
  if (!reachable()) {
    for (u64 i = 0; i < lines; ++i)
      *reinterpret_cast<std::byte**>(host_ + i * linkscope_chain_line) = host_ + linkscope_chain_next(i, lines) * linkscope_chain_line;
    return;
  }
  void* arguments[] = {&address_, &lines};
  device_->use();
  const auto& stream = device_->stream(0);
  device_->launch(device_->function("access", "linkscope_fill_chain"), 256, 256, stream.get(), arguments);
  stream.synchronize();
}

Buffer& Buffers::get(const Region& region, u32 number, Device* device) {
  auto& kept = kept_[{region.at, region.kind, region.content, number}];
  if (!kept || kept->size() < region.bytes) {
    constexpr u64 grain = u64{2} << 20;
    kept.reset();  // before the larger one is made: both might not fit
    kept = std::make_unique<Buffer>(driver_, device, region, (region.bytes + grain - 1) / grain * grain);
    if (region.content == Content::pattern) kept->fill_with_pattern(0x6C696E6B73636F70ull + ++made_);
  }
  kept->reach_from(device);
  return *kept;
}

Compared compare(const Driver& driver, const Buffer& checked, u64 offset, u64 bytes, u64 seed, u64 pattern_offset) {
  if (!checked.reachable()) {
    const auto found = check_pattern(checked.host() + offset, bytes, seed, pattern_offset);
    return {found.wrong_words, found.first_word};
  }
  auto& device = *checked.device();
  device.use();
  CUdeviceptr result = device.scratch();
  const auto& stream = device.stream(0);
  LINKSCOPE_CU(driver, cuMemsetD8Async, result, 0, sizeof(u64), stream.get());
  LINKSCOPE_CU(driver, cuMemsetD8Async, result + sizeof(u64), 0xFF, sizeof(u64), stream.get());
  CUdeviceptr start = checked.address() + offset;
  u64 words = bytes / 8, first = pattern_offset / 8;
  void* arguments[] = {&start, &words, &seed, &first, &result};
  device.launch(device.function("pattern", "linkscope_check"), 1024, 256, stream.get(), arguments);
  stream.synchronize();
  u64 words_found[2] = {0, 0};
  LINKSCOPE_CU(driver, cuMemcpyDtoH, words_found, result, sizeof words_found);
  return {words_found[0], words_found[1]};
}

}  // namespace linkscope
