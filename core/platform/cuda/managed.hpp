// Managed memory on this machine: pages that are at home when a sample begins, accessed or prefetched in it, and
// compared.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Kernels of managed memory: "touch", "touch_chain".
[[nodiscard]] bool touches_pages(const Kernel&);
/// Why this driver or these GPUs lack memory like this region's that both sides may access at any time; "" if they have
/// it.
[[nodiscard]] std::string why_no_moving_pages(const Driver&, const std::vector<DeviceFacts>&, const Region&);
/// Why a step cannot be done with managed memory here, or needs it; "" if neither holds.
[[nodiscard]] std::string why_no_managed_step(const Driver&, const Program&, const Actor&, const Step&);

/// Memory for the lifetime of the session; kept buffers would add up.
[[nodiscard]] std::unique_ptr<Buffer> make_managed(const Driver&, Owner&, Device*, const Region&, u64 number);
/// Gives actors the CPU threads that they use, and regions the chains that they follow. Sends all pages home; throws
/// Error{failed} if they do not arrive.
void prepare_managed(CudaSession&);
/// Runs every actor's `once`: all pages return home, and calls find their objects ready. Wakes the threads that will
/// access pages.
void bring_home(CudaSession&);
/// Restores the pattern of regions, so that an old access proves no new one.
void restore_managed(const CudaSession&);

[[nodiscard]] CUfunction touch_code(Device&, const Kernel&);
/// One call, or two if the contents of the pages are discarded before.
void queue_prefetch(const CudaSession&, const ActorState&, const Prefetch&);
/// Queues (streams) or does (CPU threads) one access to all pages, or a number of steps along a chain.
void touch(const CudaSession&, ActorState&, const Kernel&, u64 steps);
/// Compares the content as a CPU sees it with the initial content and the effect of the step.
void check_managed(const CudaSession&, const ActorState&, const Step&, Verdict&);

}  // namespace linkscope
