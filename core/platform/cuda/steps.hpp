// The steps of a program on this machine: how each is queued or done, and how its result is checked.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why a GPU or a CPU thread here cannot run this kernel (by name); "" if it can.
[[nodiscard]] std::string why_no_step(const Kernel&, ActorKind);

/// Whether its accesses are atomic operations.
[[nodiscard]] bool is_atomic(const Kernel&);

/// Loads every kernel that the loops launch, before host threads of several actors would load at the same time.
void load_code(const CudaSession&);
/// Queues (streams) or does (CPU threads) `count` iterations of an actor's loop.
void act(CudaSession&, ActorState&, u32 count);
/// Allocates the results of an actor's kernels, or resets them.
void start_results(const CudaSession&, ActorState&);
/// After a sample: throws Error{failed} if an SM that was to follow a chain had no block of a launch.
void check_turns(const CudaSession&);
/// Compares everything that was written, read or followed since the destinations were last poisoned.
[[nodiscard]] Verdict verify(const CudaSession&);
/// The combined result of two comparisons; the first wrong byte is the earlier one's.
[[nodiscard]] Verdict both(Verdict, const Verdict&);

}  // namespace linkscope
