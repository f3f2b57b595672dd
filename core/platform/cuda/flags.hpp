// Words that one side sets and the other waits for, by polling.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Whether an actor's loop is a set and a wait.
[[nodiscard]] bool exchanges_flags(const Actor&);
/// Why an actor cannot set and wait for these words here; "" where it can.
[[nodiscard]] std::string why_no_flags(const Program&, const Actor&);

[[nodiscard]] CUfunction flag_code(Device&);
/// Queues (streams, as one launch) or does (CPU threads) so many iterations. Throws Error{timeout} where a CPU thread gave up.
void exchange_flags(const CudaSession&, ActorState&, u32 iterations);
/// Throws Error{timeout} where a GPU's thread gave up waiting since its result was started.
void check_waits(const CudaSession&);
/// Compares a word that was set with the value that it was set to last.
void check_flags(const CudaSession&, const ActorState&, Verdict&);

}  // namespace linkscope
