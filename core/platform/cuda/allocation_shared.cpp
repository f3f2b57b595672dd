// Memory that processes share: what its owner does, and how others open it.
#include "base/error.hpp"
#include "platform/cuda/allocation.hpp"
#include "program/allocation.hpp"

namespace linkscope {
namespace {

/// The driver shares whole blocks, which smaller pieces share with their neighbours.
u64 whole_blocks(u64 bytes) { return (bytes + (u64{2} << 20) - 1) >> 21 << 21; }

}  // namespace

void Allocation::make_shared() {
  for (const auto phase : phases_of(region_.kind)) {
    if (phase == "unmap" || phase == "unregister" || phase == "close" || phase == "free") break;
    // The contents are not touched by a process that opens them, and may be there already.
    if (phase == "export" || (phase == "touch" && !own_)) continue;
    const bool by_gpu = phase == "register" || phase == "map";
    if (by_gpu ? device_ != nullptr : by_owner(region_.kind, phase) == own_) advance(phase);
  }
  touched_ = true;
}

void Allocation::allocate_to_share() {
  if (region_.kind == MemKind::ipc) {
    memory_ = {driver_, whole_blocks(bytes_)};
    address_ = memory_.address();
  } else if (region_.kind == MemKind::posix_fd) {
    const auto prop = exportable_on(device_->facts().handle);
    reserved_ = whole_granules(driver_, prop, bytes_);
    physical_ = {driver_, prop, reserved_};
  } else {
    shared_pages_ = SharedPages{region_.at.index, bytes_};
    host_ = shared_pages_.data();
  }
}

void Allocation::share() {
  if (device_) device_->use();
  share_.bytes = reserved_ ? reserved_ : bytes_;
  if (region_.kind == MemKind::ipc) share_.handle = ipc_handle(driver_, address_);
  else if (region_.kind == MemKind::posix_fd) share_.descriptor = physical_.exported();
}

void Allocation::import() {
  physical_ = {driver_, share_.descriptor};
  share_.descriptor.reset();
  reserved_ = share_.bytes;
}

void Allocation::open() {
  if (region_.kind == MemKind::ipc) {
    opened_ = std::make_unique<IpcOpened>(driver_, *device_, share_.handle);
    address_ = opened_->address();
    return;
  }
  shared_pages_ = SharedPages{share_.descriptor, bytes_};
  host_ = shared_pages_.data();
}

void Allocation::close() {
  if (region_.kind == MemKind::ipc) {
    address_ = 0;
    if (const auto gone = std::exchange(opened_, nullptr)) gone->close();
    return;
  }
  shared_pages_ = SharedPages{};
  host_ = nullptr;
}

void Allocation::give_back_shared() {
  if (region_.kind == MemKind::posix_fd) {
    unmap();
  } else {
    unpin();
    close();
    memory_.free();
  }
  share_ = {};
}

std::unique_ptr<IpcOpened> Allocation::opened_by(const Device& other) const {
  return std::make_unique<IpcOpened>(driver_, other, share_.handle);
}

}  // namespace linkscope
