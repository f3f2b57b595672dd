// Reads and writes of files by io_uring, from and to slots of the arena.
#pragma once

#include <atomic>
#include <functional>

#include "host/uring.hpp"
#include "transfer/arena.hpp"
#include "transfer/methods.hpp"

namespace linkscope {

/// Takes at most `in_flight` slots, opens a ring with as many requests, and calls `run` with both. Slots that `chunks`
/// use several times are registered with the ring. Returns false if there is no slot, or no ring: then `refused` is the
/// errno.
bool with_uring_slots(const Resources& with, u64 chunks, u32 in_flight, const CopyLane& lane, std::atomic<int>& refused,
                      const std::function<void(Arena::Lease&, Uring&)>& run);

}  // namespace linkscope
