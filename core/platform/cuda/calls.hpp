// Calls that are phases in the life of memory, one allocation per slice.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why an actor cannot run such a phase here; "" if it can.
[[nodiscard]] std::string why_no_phase(const Program&, const Actor&, const Call&);
/// Gives a region the allocations of its calls, initially empty.
void prepare_phases(CudaSession&, u32 region, Device*);
/// Prepares all allocations of the call's span for its phase.
void bring_to(CudaSession&, const Call&);
/// Runs the phase for one of them. Throws Error{memory} if there is no more.
void do_phase(CudaSession&, const ActorState&, const Call&);
/// For usable memory: whether its pages have the requested place and size.
void check_phase(const CudaSession&, const Call&, Verdict&);

}  // namespace linkscope
