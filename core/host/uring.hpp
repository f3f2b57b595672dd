// Reads and writes of files in the kernel's background: io_uring without a library (io_uring(7)).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "host/descriptor.hpp"

struct io_uring_params;

namespace linkscope {

/// One thread uses a queue.
class Uring {
 public:
  /// A queue for `depth` requests; null if the kernel refuses it, with the errno in `refused`.
  [[nodiscard]] static std::unique_ptr<Uring> open(u32 depth, int& refused);
  /// Waits for all requests in flight: their memory is the caller's.
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  /// Pins memory that requests use again and again. A kernel that refuses (its limit of locked memory, or memory of a
  /// driver) uses it all the same.
  void pin(std::span<const std::span<std::byte>> buffers);
  /// Starts a request. At most `depth` may be in flight. False if the kernel takes none: then nothing is moved.
  [[nodiscard]] bool read(int file, std::span<std::byte> to, u64 offset, u64 tag);
  [[nodiscard]] bool write(int file, std::span<const std::byte> from, u64 offset, u64 tag);

  /// A request that has ended: the bytes that it moved, or a negative errno.
  struct Done {
    u64 tag = 0;
    std::int64_t moved = 0;
  };
  /// None after `patience` without an end.
  [[nodiscard]] std::optional<Done> wait(Seconds patience);
  [[nodiscard]] u32 in_flight() const { return in_flight_; }

 private:
  /// Memory that the kernel shares.
  struct Shared {
    std::byte* start = nullptr;
    u64 bytes = 0;
  };
  Uring(Descriptor ring, const io_uring_params&);
  [[nodiscard]] Shared map(u64 bytes, u64 offset) const;
  [[nodiscard]] bool start(bool writes, int file, std::span<const std::byte> memory, u64 offset, u64 tag);

  Descriptor ring_;
  Shared queues_, entries_;
  u32 *head_ = nullptr, *tail_ = nullptr, *order_ = nullptr, *done_head_ = nullptr, *done_tail_ = nullptr;
  u32 mask_ = 0, done_mask_ = 0, in_flight_ = 0;
  std::byte* done_ = nullptr;
  std::vector<std::span<std::byte>> pinned_;
};

}  // namespace linkscope
