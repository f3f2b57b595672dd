// Host memory that the application copies often, pinned until the application ends it.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "transfer/gpus.hpp"

namespace linkscope {

class Registrations {
 public:
  /// `most_bytes`: the bound of all memory that is pinned here.
  Registrations(const Driver& driver, Gpus& gpus, u64 most_bytes)
      : driver_{driver}, gpus_{gpus}, most_bytes_{most_bytes} {}
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// Pins a range. Memory that is pinned as a whole already is left as it is. Without a GPU nothing is pinned. Memory that
  /// this process can only read is pinned for copies from it. Throws Error{usage} for memory that is not the host's, that
  /// this process cannot read, of which a part is pinned, or that is mapped for writing with MAP_SHARED from a file on a
  /// disk; Error{memory} beyond the bound or where the driver has no more.
  void add(void* start, u64 bytes);
  /// Ends the latest registration that begins here, after the GPUs' work on it. Throws Error{usage} if there is none, or
  /// if the memory was freed before.
  void remove(void* start);
  /// Throws Error{usage} for a range that was registered and then freed: the driver still has its former pages.
  void require_alive(const void* start, u64 bytes) const {
    if (count_.load(std::memory_order_relaxed)) check_alive(start, bytes);
  }
  /// Throws Error{usage} for a destination in a range that was registered as a source only: a GPU that writes there loses
  /// its context. Copies of 0 B are allowed.
  void require_writable(const void* start, u64 bytes) const {
    if (bytes && read_only_count_.load(std::memory_order_relaxed)) check_writable(start, bytes);
  }
  /// Ends all registrations, without reporting errors.
  void clear();
  /// The bytes that are pinned here.
  [[nodiscard]] u64 bytes() const;

 private:
  struct Range {
    u64 start = 0, bytes = 0;
    bool is_read_only = false;
    [[nodiscard]] bool holds(u64 address, u64 count) const {
      return start <= address && count <= bytes && address - start <= bytes - count;
    }
    [[nodiscard]] bool meets(u64 address, u64 count) const {
      return start < address + count && address < start + bytes;
    }
  };
  struct Entry {
    Range range;
    std::shared_ptr<Range> pinned;  // here, perhaps for another entry first; null: by somebody else
    /// What copies must not write to: all that was pinned for reading, or a range that somebody else pinned.
    [[nodiscard]] const Range& protects() const { return pinned && pinned->is_read_only ? *pinned : range; }
  };
  [[nodiscard]] std::shared_ptr<Range> pin(const Range&);
  void unpin(const Range&);
  /// Waits for the GPUs that copies have used.
  void finish_work() const;
  void check_alive(const void* start, u64 bytes) const;
  void check_writable(const void* start, u64 bytes) const;
  [[nodiscard]] u64 pinned_bytes() const;

  const Driver& driver_;
  Gpus& gpus_;
  u64 most_bytes_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::atomic<u64> count_{0}, read_only_count_{0};
};

}  // namespace linkscope
