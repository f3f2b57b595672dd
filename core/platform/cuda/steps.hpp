// The steps of a program on this machine: the executor of each, chosen once, and the loops that run them.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why a GPU or a CPU thread here cannot run this kernel; "" if it can.
[[nodiscard]] std::string why_no_step(const Kernel&, ActorKind);

/// Gives every actor the executors of its steps and of its loop, when all memory has its address.
void choose_executors(CudaSession&);
/// Loads all device code of the loops, before host threads of several actors would load at the same time.
void load_code(CudaSession&);
/// Allocates the results of an actor's steps, or resets them.
void start_results(const CudaSession&, ActorState&);
/// After a sample: throws Error{failed} if an SM that was to follow a chain had no block of a launch.
void check_turns(const CudaSession&);
/// Compares everything that was written, read or followed since the destinations were last poisoned.
[[nodiscard]] Verdict verify(const CudaSession&);

}  // namespace linkscope
