#include "transfer/staged.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "transfer/capture.hpp"

namespace linkscope {

bool can_ring(const Resources& with) { return with.driver.cuEventQuery && with.driver.cuEventSynchronize; }

void run_ring(const Resources& with, const CopyLane& lane, const RingWork& work, const Knobs& knobs, Towards towards,
              Progress& progress) {
  const CurrentContext current{with.driver, lane.context};
  const DuringCaptures allowed{with.driver};
  const u64 chunks = work.chunks.size(), parts = std::min<u64>(knobs.threads, chunks);
  auto lease = with.arena.take(static_cast<u32>(std::min(chunks, parts * knobs.depth)), lane);
  if (lease.size() < std::min<u64>(chunks, 2))
    throw Error{ErrorKind::memory, "the arena of " + bytes_text(with.options.arena_bytes) +
                                       " has no free slots; raise LINKSCOPE_TRANSFER_ARENA"};
  const SlotRing ring{with.driver, lane, lease, static_cast<u32>(std::min<u64>(parts, lease.size()))};
  if (towards == Towards::gpu) ring.to_gpu(work, with.movers, progress);
  else ring.to_host(work, with.movers, progress);
}

}  // namespace linkscope
