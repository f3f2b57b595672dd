#include "transfer/disk_reads.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "host/uring.hpp"
#include "transfer/uring_slots.hpp"

namespace linkscope {
namespace {

using namespace std::chrono_literals;

class Reading {
 public:
  Reading(const Resources& with, const DiskReads& reads, Arena::Lease& lease, Uring& ring, ReadCounts& counts)
      : driver_{with.driver}, reads_{reads}, lease_{lease}, ring_{ring}, counts_{counts}, under_way_(lease.size()) {
    for (std::size_t i = 0; i < lease.size(); ++i) {
      slots_.push_back(&lease[i]);
      unused_.push_back(i);
    }
  }

  void run(const CopyLane& lane, Progress& progress) {
    std::size_t next = 0;
    while (next < reads_.chunks.size() || ring_.in_flight() > 0) {
      if (progress.cancelled) throw Cancelled{};
      if (next < reads_.chunks.size() && !unused_.empty())
        if (Slot* slot = free_slot()) {
          start(*slot, reads_.chunks[next++], lane, progress);
          continue;
        }
      if (ring_.in_flight() == 0) std::this_thread::sleep_for(20us);  // the GPU has all slots
      else if (const auto done = ring_.wait(patience)) finish(*done, lane, progress);
    }
  }

 private:
  static constexpr Seconds patience{0.05};  // then looks whether the copy is cancelled
  struct UnderWay {
    Slot* slot = nullptr;
    Chunk chunk;
  };

  /// The slot that was used the longest time ago, if the GPU has finished with it. If the stream has other work to do
  /// first, and nothing is being read meanwhile, the arena may have another one.
  Slot* free_slot() {
    if (!slots_.empty() && slots_.front()->is_free(driver_)) {
      Slot* first = slots_.front();
      slots_.pop_front();
      return first;
    }
    return ring_.in_flight() == 0 ? lease_.one_more() : nullptr;
  }

  void start(Slot& slot, Chunk chunk, const CopyLane& lane, Progress& progress) {
    const auto [offset, bytes] = reads_.range_of(chunk);
    const u64 tag = unused_.back(), whole = (bytes + file_granule - 1) / file_granule * file_granule;
    unused_.pop_back();
    under_way_[tag] = {&slot, chunk};
    if (!ring_.read(reads_.file.direct(), {slot.data(), whole}, offset, tag)) finish({tag, 0}, lane, progress);
  }

  void finish(const Uring::Done& done, const CopyLane& lane, Progress& progress) {
    const auto [slot, chunk] = under_way_[done.tag];
    unused_.push_back(done.tag);
    const auto [offset, bytes] = reads_.range_of(chunk);
    // A file ends within its last granule. Any other short read, and an error, is made again by this thread, which knows
    // other ways and reports what is wrong.
    const u64 moved = done.moved > 0 ? static_cast<u64>(done.moved) : 0;
    const u64 kept = moved >= bytes ? bytes : moved / file_granule * file_granule;
    counts_.direct += kept;
    counts_.uring += kept;
    if (kept < bytes) reads_.file.read_cold(slot->data() + kept, offset + kept, bytes - kept, counts_);
    slot->expose(lane);
    reads_.queue(slot->data(), chunk);
    slot->guard(driver_);
    slots_.push_back(slot);
    progress.add(chunk.bytes);
  }

  const Driver& driver_;
  const DiskReads& reads_;
  Arena::Lease& lease_;
  Uring& ring_;
  ReadCounts& counts_;
  std::deque<Slot*> slots_;          // idle, the least recently used first
  std::vector<UnderWay> under_way_;  // by tag
  std::vector<u64> unused_;          // tags
};

}  // namespace

bool read_by_uring(const Resources& with, const DiskReads& reads, u32 in_flight, const CopyLane& lane,
                   ReadCounts& counts, Progress& progress) {
  if (reads.file.direct() < 0) return false;
  return with_uring_slots(
      with, reads.chunks.size(), in_flight, lane, counts.uring_refused,
      [&](Arena::Lease& lease, Uring& ring) { Reading{with, reads, lease, ring, counts}.run(lane, progress); });
}

}  // namespace linkscope
