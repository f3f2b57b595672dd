#include "host/uring.hpp"

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
#include <thread>
#include <utility>

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

namespace linkscope {

#ifdef IORING_FEAT_NODROP
namespace {

using namespace std::chrono_literals;

constexpr Seconds long_time{60};

u32 load(u32* word) { return std::atomic_ref{*word}.load(std::memory_order_acquire); }
void store(u32* word, u32 value) { std::atomic_ref{*word}.store(value, std::memory_order_release); }

}  // namespace

std::unique_ptr<Uring> Uring::open(u32 depth, int& refused) {
  io_uring_params facts{};
  Descriptor ring{static_cast<int>(syscall(__NR_io_uring_setup, depth, &facts))};
  // Both came before IORING_OP_READ (Linux 5.6).
  constexpr u32 needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP;
  refused = !ring ? errno : (facts.features & needed) == needed ? 0 : ENOSYS;
  if (refused) return nullptr;
  std::unique_ptr<Uring> made{new Uring{std::move(ring), facts}};
  if (made->queues_.start && made->entries_.start) return made;
  refused = ENOMEM;
  return nullptr;
}

Uring::Uring(Descriptor ring, const io_uring_params& facts)
    : ring_{std::move(ring)},
      queues_{map(std::max<u64>(facts.sq_off.array + facts.sq_entries * sizeof(u32),
                                facts.cq_off.cqes + facts.cq_entries * sizeof(io_uring_cqe)),
                  IORING_OFF_SQ_RING)},
      entries_{map(facts.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)} {
  if (!queues_.start || !entries_.start) return;
  const auto word = [&](u32 offset) { return reinterpret_cast<u32*>(queues_.start + offset); };
  head_ = word(facts.sq_off.head);
  tail_ = word(facts.sq_off.tail);
  mask_ = *word(facts.sq_off.ring_mask);
  order_ = word(facts.sq_off.array);
  done_head_ = word(facts.cq_off.head);
  done_tail_ = word(facts.cq_off.tail);
  done_mask_ = *word(facts.cq_off.ring_mask);
  done_ = queues_.start + facts.cq_off.cqes;
}

Uring::~Uring() {
  while (in_flight_ > 0) (void)wait(long_time);  // the kernel ends every request
  for (const auto& [start, bytes] : {queues_, entries_})
    if (start) munmap(start, bytes);
}

Uring::Shared Uring::map(u64 bytes, u64 offset) const {
  void* start =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_.get(), static_cast<off_t>(offset));
  return start == MAP_FAILED ? Shared{} : Shared{static_cast<std::byte*>(start), bytes};
}

void Uring::pin(std::span<const std::span<std::byte>> buffers) {
  std::vector<iovec> parts;
  for (const auto& buffer : buffers) parts.push_back({buffer.data(), buffer.size()});
  if (syscall(__NR_io_uring_register, ring_.get(), IORING_REGISTER_BUFFERS, parts.data(),
              static_cast<u32>(parts.size())) == 0)
    pinned_.assign(buffers.begin(), buffers.end());
}

bool Uring::read(int file, std::span<std::byte> to, u64 offset, u64 tag) { return start(false, file, to, offset, tag); }

bool Uring::write(int file, std::span<const std::byte> from, u64 offset, u64 tag) {
  return start(true, file, from, offset, tag);
}

bool Uring::start(bool writes, int file, std::span<const std::byte> memory, u64 offset, u64 tag) {
  const auto buffer = std::find_if(pinned_.begin(), pinned_.end(), [&](std::span<std::byte> one) {
    return memory.data() >= one.data() && memory.data() + memory.size() <= one.data() + one.size();
  });
  const bool is_pinned = buffer != pinned_.end();
  const u32 tail = *tail_, index = tail & mask_;  // this thread alone writes the tail
  io_uring_sqe entry{};
  if (writes) entry.opcode = is_pinned ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE;
  else entry.opcode = is_pinned ? IORING_OP_READ_FIXED : IORING_OP_READ;
  entry.fd = file;
  entry.addr = reinterpret_cast<u64>(memory.data());
  entry.len = static_cast<u32>(memory.size());
  entry.off = offset;
  entry.user_data = tag;
  // Without this the calling thread itself writes to space that was only reserved, one request after the other.
  if (writes) entry.flags = IOSQE_ASYNC;
  if (is_pinned) entry.buf_index = static_cast<std::uint16_t>(buffer - pinned_.begin());
  std::memcpy(entries_.start + index * sizeof entry, &entry, sizeof entry);
  order_[index] = index;
  store(tail_, tail + 1);
  while (syscall(__NR_io_uring_enter, ring_.get(), 1, 0, 0, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (load(head_) == tail + 1) {
    ++in_flight_;
    return true;
  }
  store(tail_, tail);  // else the next call would start this request, when its memory has another use
  return false;
}

std::optional<Uring::Done> Uring::wait(Seconds patience) {
  if (load(done_tail_) == *done_head_) {
    pollfd ready{ring_.get(), POLLIN, 0};
    const auto ms = static_cast<int>(std::min(std::ceil(patience.count() * 1e3), 1e9));
    while (poll(&ready, 1, ms) < 0) {
      if (errno == EINTR) continue;
      std::this_thread::sleep_for(1ms);  // the kernel ends the requests all the same
      break;
    }
    if (load(done_tail_) == *done_head_) return {};
  }
  io_uring_cqe found;
  std::memcpy(&found, done_ + (*done_head_ & done_mask_) * sizeof found, sizeof found);
  store(done_head_, *done_head_ + 1);
  --in_flight_;
  return Done{found.user_data, found.res};
}

#else

std::unique_ptr<Uring> Uring::open(u32, int& refused) {
  refused = ENOSYS;
  return nullptr;
}
Uring::~Uring() = default;
void Uring::pin(std::span<const std::span<std::byte>>) {}
bool Uring::read(int, std::span<std::byte>, u64, u64) { return false; }
bool Uring::write(int, std::span<const std::byte>, u64, u64) { return false; }
std::optional<Uring::Done> Uring::wait(Seconds) { return {}; }

#endif

}  // namespace linkscope
