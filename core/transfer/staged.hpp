// Runs ring work with the threads and slots that a method may have.
#pragma once
#include "transfer/methods.hpp"
#include "transfer/ring.hpp"

namespace linkscope {

/// Whether the driver has the calls that guard slots.
[[nodiscard]] bool can_ring(const Resources&);

/// Throws Error{memory} if the arena has fewer than two slots for two chunks.
void run_ring(const Resources&, const CopyLane&, const RingWork&, const Knobs&, Towards, Progress&);

}  // namespace linkscope
