// io_uring without a library: three system calls and two rings in shared memory (io_uring(7)).
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "host/file_queue.hpp"

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

namespace linkscope {

#ifdef IORING_OFF_SQES
namespace {

/// A mapping of the ring's descriptor.
class Shared {
 public:
  Shared() = default;
  Shared(int descriptor, u64 bytes, u64 offset)
      : bytes_{bytes},
        start_{mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor,
                    static_cast<off_t>(offset))} {}
  ~Shared() {
    if (*this) munmap(start_, bytes_);
  }
  Shared(Shared&& other) noexcept : bytes_{other.bytes_}, start_{std::exchange(other.start_, MAP_FAILED)} {}
  Shared& operator=(Shared&& other) noexcept {
    std::swap(bytes_, other.bytes_), std::swap(start_, other.start_);
    return *this;
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  explicit operator bool() const { return start_ != MAP_FAILED; }
  template <class T>
  [[nodiscard]] T* at(u64 offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(start_) + offset);
  }

 private:
  u64 bytes_ = 0;
  void* start_ = MAP_FAILED;
};

u32 load(const u32* word) { return std::atomic_ref{*const_cast<u32*>(word)}.load(std::memory_order_acquire); }
void store(u32* word, u32 value) { std::atomic_ref{*word}.store(value, std::memory_order_release); }

class Uring final : public FileQueue::Engine {
 public:
  Uring(Descriptor ring, const io_uring_params& p, std::span<const std::span<std::byte>> buffers)
      : ring_{std::move(ring)},
        queues_{ring_.get(),
                std::max<u64>(p.sq_off.array + p.sq_entries * sizeof(u32),
                              p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe)),
                IORING_OFF_SQ_RING},
        entries_{ring_.get(), p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES} {
    if (!queues_ || !entries_) return;
    tail_ = queues_.at<u32>(p.sq_off.tail);
    mask_ = *queues_.at<u32>(p.sq_off.ring_mask);
    order_ = queues_.at<u32>(p.sq_off.array);
    done_head_ = queues_.at<u32>(p.cq_off.head);
    done_tail_ = queues_.at<u32>(p.cq_off.tail);
    done_mask_ = *queues_.at<u32>(p.cq_off.ring_mask);
    done_ = queues_.at<io_uring_cqe>(p.cq_off.cqes);
    pin(buffers);
  }

  explicit operator bool() const { return queues_ && entries_; }

  void start(u64 slot, const FileRequest& r) override {
    const u32 tail = *tail_, index = tail & mask_;  // this thread alone writes the tail
    io_uring_sqe entry{};
    const auto buffer = std::find_if(pinned_.begin(), pinned_.end(), [&](std::span<std::byte> b) {
      return r.at >= b.data() && r.at + r.bytes <= b.data() + b.size();
    });
    const bool fixed = buffer != pinned_.end();
    entry.opcode = static_cast<u8>(r.write ? (fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE)
                                           : (fixed ? IORING_OP_READ_FIXED : IORING_OP_READ));
    entry.fd = r.file->get();
    entry.addr = reinterpret_cast<u64>(r.at);
    entry.len = static_cast<u32>(std::min(r.bytes, most_bytes));  // the queue asks for the rest
    entry.off = r.offset;
    entry.user_data = slot;
    if (fixed) entry.buf_index = static_cast<std::uint16_t>(buffer - pinned_.begin());
    *entries_.at<io_uring_sqe>(index * sizeof entry) = entry;
    order_[index] = index;
    store(tail_, tail + 1);
    if (enter(1) < 0) file_failed(r.file->path(), "io_uring takes no request", errno);
  }

  bool wait(Seconds patience, Result& result) override {
    if (load(done_tail_) == *done_head_) {
      pollfd ready{ring_.get(), POLLIN, 0};
      const auto ms = static_cast<int>(std::min(std::ceil(patience.count() * 1e3), 1e9));
      while (poll(&ready, 1, ms) < 0)
        if (errno != EINTR) return false;
      if (load(done_tail_) == *done_head_) return false;
    }
    const io_uring_cqe& found = done_[*done_head_ & done_mask_];
    result = {found.user_data, found.res};
    store(done_head_, *done_head_ + 1);
    return true;
  }

 private:
  static constexpr u64 most_bytes = u64{1} << 30;  // of one request; the kernel moves less than 2 GiB at once

  long enter(u32 count) const {
    while (true) {
      const long taken = syscall(__NR_io_uring_enter, ring_.get(), count, 0, 0, nullptr, 0);
      if (taken >= 0 || (errno != EINTR && errno != EAGAIN && errno != EBUSY)) return taken;
    }
  }

  /// Pins buffers so that requests need not. A kernel that refuses (its limit of locked memory, or memory of a driver)
  /// reads and writes them all the same.
  void pin(std::span<const std::span<std::byte>> buffers) {
    std::vector<iovec> parts;
    for (const auto& buffer : buffers) parts.push_back({buffer.data(), buffer.size()});
    if (parts.empty() || syscall(__NR_io_uring_register, ring_.get(), IORING_REGISTER_BUFFERS, parts.data(),
                                 static_cast<u32>(parts.size())) != 0)
      return;
    pinned_.assign(buffers.begin(), buffers.end());
  }

  Descriptor ring_;
  Shared queues_, entries_;
  u32 *tail_ = nullptr, *order_ = nullptr, *done_head_ = nullptr, *done_tail_ = nullptr;
  u32 mask_ = 0, done_mask_ = 0;
  io_uring_cqe* done_ = nullptr;
  std::vector<std::span<std::byte>> pinned_;
};

}  // namespace

std::unique_ptr<FileQueue::Engine> uring_engine(u32 depth, std::span<const std::span<std::byte>> buffers,
                                                std::string& why_not) {
  io_uring_params params{};
  Descriptor ring{static_cast<int>(syscall(__NR_io_uring_setup, depth, &params))};
  if (!ring) {
    why_not = std::string{"the kernel refuses io_uring: "} + std::strerror(errno);
    return nullptr;
  }
  // Both came before the operations IORING_OP_READ and IORING_OP_WRITE (Linux 5.6).
  constexpr u32 needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP;
  if ((params.features & needed) != needed) {
    why_not = "the kernel's io_uring is older than Linux 5.6";
    return nullptr;
  }
  auto made = std::make_unique<Uring>(std::move(ring), params, buffers);
  if (*made) return made;
  why_not = "the rings of io_uring cannot be mapped";
  return nullptr;
}

#else

std::unique_ptr<FileQueue::Engine> uring_engine(u32, std::span<const std::span<std::byte>>, std::string& why_not) {
  why_not = "this build has no linux/io_uring.h";
  return nullptr;
}

#endif

}  // namespace linkscope
