// Managed memory on this machine: pages that are at home when a sample begins, touched or prefetched in it, and compared.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Kernels of managed memory: "touch", "touch_chain".
[[nodiscard]] bool touches_pages(const Kernel&);
/// Why this driver or these GPUs have no memory like this region's that both sides may touch at any time; "" where they do.
[[nodiscard]] std::string why_no_moving_pages(const Driver&, const std::vector<DeviceFacts>&, const Region&);
/// Why a step cannot be done with managed memory here, or needs it; "" where neither is so.
[[nodiscard]] std::string why_no_managed_step(const Driver&, const Program&, const Actor&, const Step&);

/// Memory that lives as long as the session: what is kept for later would add up.
[[nodiscard]] std::unique_ptr<Buffer> make_managed(const Driver&, Owner&, Device*, const Region&, u64 number);
/// Gives actors the CPU threads that they touch by, and regions the chains that they follow. Sends all pages home; throws
/// Error{failed} where they are not there then.
void prepare_managed(CudaSession&);
/// Does everybody's `once`: all pages go home, and calls find what they are about as they need it. Wakes the threads
/// that will touch pages.
void bring_home(CudaSession&);
/// Regions hold their pattern again: an old touch proves no new one.
void restore_managed(const CudaSession&);

[[nodiscard]] CUfunction touch_code(Device&, const Kernel&);
/// One call, or two where what the pages hold is discarded before.
void queue_prefetch(const CudaSession&, const ActorState&, const Prefetch&);
/// Queues (streams) or does (CPU threads) one touch of all pages, or so many steps along a chain.
void touch(const CudaSession&, ActorState&, const Kernel&, u64 steps);
/// Compares what is there now, seen by a CPU, with what was there at first and what the step did to it.
void check_managed(const CudaSession&, const ActorState&, const Step&, Verdict&);

}  // namespace linkscope
