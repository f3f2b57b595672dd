// Copies in chunks through slots of pinned memory: CPU threads work on one side of a slot, the GPU on the other.
#pragma once
#include <chrono>
#include <functional>
#include <vector>

#include "base/units.hpp"
#include "transfer/arena.hpp"
#include "transfer/movers.hpp"
#include "transfer/progress.hpp"

namespace linkscope {

/// What a slot holds at one time: bytes of a copy, or entries of a list of blocks.
struct Chunk {
  u64 at = 0, count = 0;
  u64 bytes = 0;
};

/// How long a thread polls before it sleeps between polls. The other side takes microseconds for a chunk, but earlier work
/// of the stream may take seconds.
constexpr std::chrono::microseconds polling_time{200};

/// What happens to one chunk. Several threads call both functions at once, for different chunks.
struct RingWork {
  std::vector<Chunk> chunks;
  std::function<void(std::byte* slot, Chunk)> by_cpu;  // fills the slot, or empties it
  std::function<void(std::byte* slot, Chunk)> queue;   // queues the GPU's part on the lane
  std::function<void(Slot&, Chunk)> queue_anywhere{};  // in place of `queue`: chooses a lane, and guards the slot there
};

class SlotRing {
 public:
  /// `parts` threads use the slots of the lease in turn; at most as many threads as slots.
  SlotRing(const Driver& driver, const CopyLane& lane, Arena::Lease& lease, u32 parts)
      : driver_{driver}, lane_{lane}, lease_{lease}, parts_{parts} {}

  /// CPUs fill the slots. Returns when the GPU's part of every chunk is queued, and not when it is done.
  void to_gpu(const RingWork&, Movers&, Progress&) const;
  /// CPUs empty the slots. Returns when every chunk is at its destination.
  void to_host(const RingWork&, Movers&, Progress&) const;

 private:
  struct State;
  void run(const RingWork&, Movers&, Progress&, void (SlotRing::*part_of)(State&) const) const;
  void fill_part(State&) const;
  void empty_part(State&) const;
  void queue(State&, Slot&, Chunk) const;
  [[nodiscard]] Slot* free_slot(State&) const;
  [[nodiscard]] bool wait(State&, Slot&, std::chrono::nanoseconds most) const;

  const Driver& driver_;
  CopyLane lane_;
  Arena::Lease& lease_;
  u32 parts_;
};

}  // namespace linkscope
