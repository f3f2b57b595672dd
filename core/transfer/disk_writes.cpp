#include "transfer/disk_writes.hpp"

#include <algorithm>
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

/// Each slot goes round: unused, filled by the GPU, written, unused.
class Writing {
 public:
  Writing(const Resources& with, const DiskWrites& writes, Arena::Lease& lease, Uring& ring, WriteCounts& counts)
      : driver_{with.driver}, writes_{writes}, ring_{ring}, counts_{counts}, under_way_(lease.size()) {
    for (std::size_t i = 0; i < lease.size(); ++i) {
      unused_.push_back(&lease[i]);
      tags_.push_back(i);
    }
  }

  void run(const CopyLane& lane, Progress& progress) {
    std::size_t next = 0;
    while (next < writes_.chunks.size() || !filling_.empty() || ring_.in_flight() > 0) {
      if (progress.cancelled) throw Cancelled{};
      if (next < writes_.chunks.size() && !unused_.empty() && unused_.front()->is_free(driver_))
        fill(writes_.chunks[next++], lane);
      else if (!filling_.empty() && filling_.front().slot->is_free(driver_)) start(progress);
      else if (const auto done = ended()) finish(*done, progress);
    }
  }

 private:
  static constexpr Seconds patience{0.05};  // then looks whether the saving is cancelled
  struct Filled {
    Slot* slot = nullptr;
    Chunk chunk;
  };
  /// The part of a chunk that bypasses the page cache: whole granules.
  struct Whole {
    u64 head = 0, bytes = 0;
  };
  static Whole whole_of(Chunk chunk) {
    const u64 into = chunk.at % file_granule, head = std::min(chunk.bytes, into ? file_granule - into : 0);
    return {head, (chunk.bytes - head) / file_granule * file_granule};
  }

  void fill(Chunk chunk, const CopyLane& lane) {
    Slot* slot = unused_.front();
    slot->expose(lane);
    writes_.queue(slot->data(), chunk);
    slot->guard(driver_);
    unused_.pop_front();
    filling_.push_back({slot, chunk});
  }

  void start(Progress& progress) {
    const auto [slot, chunk] = filling_.front();
    filling_.pop_front();
    writes_.fill(slot->data(), chunk);
    const auto [head, bytes] = whole_of(chunk);
    const u64 tag = tags_.back();
    tags_.pop_back();
    under_way_[tag] = {slot, chunk};
    const std::byte* from = writes_.start_in(slot->data(), chunk) + head;
    if (bytes == 0 || !ring_.write(writes_.file.direct(), {from, bytes}, chunk.at + head, tag))
      finish({tag, 0}, progress);
  }

  /// None after a while. A GPU that fills a slot takes tens of microseconds, and its slot must not wait for a disk.
  std::optional<Uring::Done> ended() {
    const bool gpu_works = !filling_.empty();
    const auto done = ring_.in_flight() == 0 ? std::nullopt : ring_.wait(gpu_works ? Seconds{0} : patience);
    if (!done && (gpu_works || ring_.in_flight() == 0)) std::this_thread::sleep_for(20us);
    return done;
  }

  void finish(const Uring::Done& done, Progress& progress) {
    const auto [slot, chunk] = under_way_[done.tag];
    tags_.push_back(done.tag);
    const auto [head, bytes] = whole_of(chunk);
    const std::byte* from = writes_.start_in(slot->data(), chunk);
    // What is left after a short write or an error is written again by this thread, which knows other ways and reports what
    // is wrong. The ends of the file within a granule are always left.
    const u64 moved = done.moved > 0 ? static_cast<u64>(done.moved) : 0,
              kept = std::min(moved, bytes) / file_granule * file_granule;
    counts_.direct += kept;
    counts_.uring += kept;
    const u64 end = head + kept;
    if (head) writes_.file.write(from, chunk.at, head, counts_);
    if (end < chunk.bytes) writes_.file.write(from + end, chunk.at + end, chunk.bytes - end, counts_);
    unused_.push_back(slot);
    progress.add(chunk.bytes);
  }

  const Driver& driver_;
  const DiskWrites& writes_;
  Uring& ring_;
  WriteCounts& counts_;
  std::deque<Slot*> unused_;       // the first was used the longest time ago
  std::deque<Filled> filling_;     // in the order of the lane
  std::vector<Filled> under_way_;  // by tag
  std::vector<u64> tags_;          // unused ones
};

}  // namespace

bool write_by_uring(const Resources& with, const DiskWrites& writes, u32 in_flight, const CopyLane& lane,
                    WriteCounts& counts, Progress& progress) {
  if (writes.file.direct() < 0 || writes.file.is_in_memory()) return false;
  return with_uring_slots(
      with, writes.chunks.size(), in_flight, lane, counts.uring_refused,
      [&](Arena::Lease& lease, Uring& ring) { Writing{with, writes, lease, ring, counts}.run(lane, progress); });
}

}  // namespace linkscope
