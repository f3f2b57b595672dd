#include "transfer/uring_slots.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "gpu/context.hpp"
#include "transfer/capture.hpp"

namespace linkscope {

bool with_uring_slots(const Resources& with, u64 chunks, u32 in_flight, const CopyLane& lane, std::atomic<int>& refused,
                      const std::function<void(Arena::Lease&, Uring&)>& run) {
  const CurrentContext current{with.driver, lane.context};
  const DuringCaptures allowed{with.driver};
  auto lease = with.arena.take(static_cast<u32>(std::min<u64>(chunks, in_flight)), lane);
  if (lease.size() == 0) return false;
  int why_not = 0;
  const auto ring = Uring::open(static_cast<u32>(lease.size()), why_not);  // ends before its slots are given back
  if (!ring) {
    refused = why_not;
    return false;
  }
  std::vector<std::span<std::byte>> buffers;
  for (std::size_t i = 0; i < lease.size(); ++i) buffers.emplace_back(lease[i].data(), with.arena.slot_bytes());
  if (chunks >= 2 * lease.size()) ring->pin(buffers);  // a slot that is used once is pinned once in any case
  run(lease, *ring);
  return true;
}

}  // namespace linkscope
