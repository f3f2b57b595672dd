// Calls that are the phases in the life of memory, an allocation a slice.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why an actor here cannot do such a phase; "" where it can.
[[nodiscard]] std::string why_no_phase(const Program&, const Actor&, const Call&);
/// Gives a region the allocations that calls will make, as yet nothing.
void prepare_phases(CudaSession&, u32 region, Device*);
/// Brings all allocations of the call's span to where its phase is next.
void bring_to(CudaSession&, const Call&);
/// Does the phase for one of them. Throws Error{memory} where there is no more.
void do_phase(CudaSession&, const ActorState&, const Call&);
/// Of memory that is in use now: whether its pages are where, and of the size, that was asked for.
void check_phase(const CudaSession&, const Call&, Verdict&);

}  // namespace linkscope
