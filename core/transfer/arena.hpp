// The one pool of pinned host memory through which copies are staged: slots of one size, bounded in total.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "base/units.hpp"
#include "gpu/driver.hpp"
#include "gpu/memory.hpp"
#include "gpu/stream.hpp"

namespace linkscope {

/// Where the GPU's part of a copy is queued. The context is that of the GPU with this index (Devices).
struct CopyLane {
  u32 gpu = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  bool operator==(const CopyLane&) const = default;
};

/// As a stream: the legacy default stream of the GPU that has the memory, whichever context is current.
/// Between two ranges of host memory it is that of the current context.
inline const CUstream stream_of_memory = reinterpret_cast<CUstream>(~u64{0});

/// A stream as the driver knows it, in the context of its lane.
inline CUstream driver_stream(CUstream stream) { return stream == stream_of_memory ? nullptr : stream; }

/// A piece of pinned memory. After hold(), an event guards it until the GPU has read or written it.
class Slot {
 public:
  explicit Slot(std::byte* data) : data_{data} {}

  [[nodiscard]] std::byte* data() const { return data_; }
  /// Must precede the call that queues work of the GPU on the slot: until guard(), nothing shows when that work ends.
  void expose(const CopyLane& lane) { lane_ = lane, exposed_ = true; }
  /// Records the event behind the queued work. The lane's context is current.
  void guard(const Driver&);
  /// Whether the GPU has finished with it. Throws if the driver reports an error.
  [[nodiscard]] bool is_free(const Driver&);
  [[nodiscard]] bool is_exposed() const { return exposed_; }
  /// Whether only earlier work of this lane delays it.
  [[nodiscard]] bool waits_for(const CopyLane& lane) const { return !exposed_ && lane_ == lane; }
  /// Makes an exposed slot usable again by waiting for all work of its lane. Returns false if the driver cannot wait.
  bool recover(const Driver&);
  /// Waits for the GPU, without reporting errors.
  void finish(const Driver&);

 private:
  std::byte* data_;
  std::vector<std::unique_ptr<Event>> events_;  // by GPU, because an event belongs to a context; made at first use
  const Event* pending_ = nullptr;
  CopyLane lane_;  // of the last use
  bool exposed_ = false;
};

class Arena {
 public:
  /// Allocates nothing yet.
  Arena(const Driver& driver, u64 bytes, u64 slot_bytes) : driver_{driver}, bytes_{bytes}, slot_bytes_{slot_bytes} {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] u64 slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] u64 allocated_bytes() const;

  /// Waits for the GPUs and frees all. No slot is leased, and the context of a GPU is current.
  void clear();

  /// Slots of one copy. They return to the arena when the lease ends, those in use by the GPU with their guards.
  class Lease {
   public:
    Lease(Arena& arena, std::vector<Slot*> slots) : arena_{&arena}, slots_{std::move(slots)} {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    [[nodiscard]] std::size_t size() const { return slots_.size(); }
    /// One more slot that is free now; null if the arena has none. Several threads may call this at once.
    [[nodiscard]] Slot* one_more() { return arena_->one_more(more_); }
    [[nodiscard]] Slot& operator[](std::size_t i) const { return *slots_[i]; }

   private:
    Arena* arena_;
    std::vector<Slot*> slots_, more_;
  };

  /// Up to `wanted` slots, free ones first. The others wait only for earlier work of the same lane: a copy must not
  /// wait for another stream, which may itself wait for this one. The lane's context is current.
  [[nodiscard]] Lease take(u32 wanted, const CopyLane& lane);
  /// Up to `wanted` slots that are free now.
  [[nodiscard]] Lease take_free(u32 wanted);

 private:
  struct Entry {
    std::unique_ptr<Slot> slot;
    bool leased = false;  // also if it cannot be recovered
  };
  [[nodiscard]] Lease lease(u32 wanted, const CopyLane* lane);
  void add_ready(std::vector<Slot*>& taken, u32 wanted);
  void grow(std::vector<Slot*>& taken, u32 wanted);
  void add_waiting(std::vector<Slot*>& taken, u32 wanted, const CopyLane& lane);
  [[nodiscard]] Slot* one_more(std::vector<Slot*>& taken);
  void give_back(const std::vector<Slot*>& slots);

  const Driver& driver_;
  u64 bytes_, slot_bytes_;
  mutable std::mutex mutex_;
  std::vector<PinnedMemory> segments_;
  std::vector<Entry> entries_;  // in the order of use: the first are the most likely to be in the CPU's caches
};

}  // namespace linkscope
