// Managed memory on this machine: pages that are at home when a sample begins, accessed or prefetched in it, and
// compared.
#pragma once
#include "platform/cuda/verification.hpp"

namespace linkscope {

/// Why this driver or these GPUs lack memory like this region's that both sides may access at any time; "" if they have
/// it.
[[nodiscard]] std::string why_no_moving_pages(const Driver&, const std::vector<DeviceFacts>&, const Region&);
/// Why a step cannot be done with managed memory here, or needs it; "" if neither holds.
[[nodiscard]] std::string why_no_managed_step(const Driver&, const Program&, const Actor&, const Step&);

/// Memory for the lifetime of the session; kept buffers would add up.
[[nodiscard]] std::unique_ptr<Buffer> make_managed(const Driver&, Device*, const Region&, u64 number);
/// Gives actors the CPU threads that they use, and regions the chains that they follow. Sends all pages home; throws
/// Error{failed} if they do not arrive.
void prepare_managed(CudaSession&);
/// Runs every actor's `once`: all pages return home, and calls find their objects ready. Wakes the threads that will
/// access pages.
void bring_home(CudaSession&);
/// Restores the pattern of regions, so that an old access proves no new one.
void restore_managed(const CudaSession&);

/// Bytes of a page of the host.
[[nodiscard]] u64 page_bytes();
/// The address for a CPU, which equals that for a GPU.
[[nodiscard]] std::byte* host_view(const Buffer&);
/// One call, or two if the contents of the pages are discarded before.
void queue_prefetch(const CudaSession&, const ActorState&, const Prefetch&);
/// Accesses all pages by an actor's CPU threads.
/// Bytes from one byte that a kernel touches to the next: a page, or the stride of the access.
[[nodiscard]] u64 touch_spacing(const Kernel&);
/// Whether a kernel that touches memory writes it.
[[nodiscard]] inline bool writes(const Kernel& kernel) { return kernel.traffic.front().dir == Access::Dir::write; }
void touch_on_cpu(const CudaSession&, ActorState&, const Kernel&, u64 steps);

// Each adds a comparison of the content as a CPU sees it with the initial content and the effect of the step.
void check_prefetch(const CudaSession&, const ActorState&, const Prefetch&, Checks&);
void check_touch(const CudaSession&, const ActorState&, const Kernel&, Checks&);
/// Of the address that a chain through pages led to.
void check_touch_chain(const CudaSession&, const ActorState&, const Kernel&, Checks&);

}  // namespace linkscope
