// Memory that two processes share: requests to the other one, and how its memory is opened here.
#include <cstring>

#include "base/error.hpp"
#include "platform/cuda/allocation.hpp"

namespace linkscope {

void Allocation::allocate_there() {
  piece_ = owner_.allocate(region_, region_.kind == MemKind::shm ? "" : device_->facts().uuid, bytes_);
  reserved_ = piece_.bytes;
}

void Allocation::share() {
  if (region_.process != 0) {
    share_ = owner_.share(piece_);
  } else if (region_.kind == MemKind::ipc) {
    share_.handle = ipc_handle(driver_, address_);
  } else {
    share_.descriptor = physical_.exported();
  }
}

void Allocation::import() {
  physical_ = {driver_, share_.descriptor};
  share_.descriptor.reset();
}

void Allocation::open() {
  if (region_.kind == MemKind::ipc) {
    opened_ = std::make_unique<IpcOpened>(driver_, *device_, share_.handle);
    address_ = opened_->address();
    return;
  }
  shared_pages_ = SharedPages{piece_.descriptor, bytes_};
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

void Allocation::give_back_there() {
  if (region_.kind == MemKind::posix_fd) {
    unmap();
  } else {
    unpin();
    close();
  }
  share_ = {};
  if (piece_.number) owner_.free(std::exchange(piece_, {}));
}

void Allocation::allocate_to_share() {
  if (region_.kind == MemKind::ipc) {
    memory_ = {driver_, whole_blocks(bytes_)};
    address_ = memory_.address();
    return;
  }
  const auto prop = exportable_on(device_->facts().handle);
  reserved_ = whole_granules(driver_, prop, bytes_);
  physical_ = {driver_, prop, reserved_};
  map();
}

void Allocation::give_back_shared() {
  share_ = {};
  if (region_.kind == MemKind::posix_fd) return unmap();
  address_ = 0;
  memory_.free();
}

std::unique_ptr<IpcOpened> Allocation::opened_by(Device& other) {
  auto opened = std::make_unique<IpcOpened>(driver_, other, share_.handle);
  prove_shared(piece_, &other, opened->address());
  return opened;
}

std::unique_ptr<OwnersPiece> Allocation::opened_there(const Device& by) {
  auto opened = std::make_unique<OwnersPiece>(
      owner_, owner_.open(region_.kind, share_, by.facts().uuid, reserved_ ? reserved_ : whole_blocks(bytes_)));
  device_->use();
  prove_shared(opened->get(), device_, address_);
  return opened;
}

OwnersPiece::~OwnersPiece() {
  try {
    owner_.free(piece_);
  } catch (const Error&) {  // its memory ended with it
  }
}

/// Writes a word by a GPU that calls the memory `at` (host memory: by the CPU), lets the other process read it, and
/// restores the old contents.
void Allocation::prove_shared(const Owner::Piece& seen, Device* by, CUdeviceptr at) {
  const u64 word = 0x6C696E6B53000000ull + (seen.number << 8) + ++proofs_,
            offset = (bytes_ - sizeof word) / sizeof word * sizeof word;
  const auto write = [&](u64 value) {
    if (host_) {
      *reinterpret_cast<volatile u64*>(host_ + offset) = value;
      return;
    }
    const auto& stream = by->stream(0);
    LINKSCOPE_CU(driver_, cuMemcpyHtoDAsync, at + offset, &value, sizeof value, stream.get());
    stream.synchronize();
  };
  u64 before = 0;
  if (by) by->use();
  if (host_) std::memcpy(&before, host_ + offset, sizeof before);
  else LINKSCOPE_CU(driver_, cuMemcpyDtoH, &before, at + offset, sizeof before);
  write(word);
  const u64 found = owner_.look(seen, offset);
  write(before);
  if (found != word)
    throw Error{ErrorKind::failed, "data written to " + to_string(region_.at) + "." + to_string(region_.kind) +
                                       " does not arrive in the memory of the other process"};
}

}  // namespace linkscope
