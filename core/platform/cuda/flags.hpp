// Words that one side sets and the other waits for, by polling.
#pragma once
#include "platform/cuda/session.hpp"
#include "platform/host/words.hpp"

namespace linkscope {

/// Whether an actor's loop is a set and a wait.
[[nodiscard]] bool exchanges_flags(const Actor&);
/// Why an actor cannot set and wait for these words here; "" where it can.
[[nodiscard]] std::string why_no_flags(const Program&, const Actor&);

/// Whether a thread of another process does it.
[[nodiscard]] bool acts_elsewhere(const Actor&);
/// Whether that waits for the first word: it is told before everybody starts.
[[nodiscard]] bool waits_elsewhere(const Actor&);
/// Tells that process to do so many iterations.
void exchange_elsewhere(const CudaSession&, const ActorState&, u32 iterations);

[[nodiscard]] CUfunction flag_code(Device&);
/// Queues them on a GPU's stream, as one launch: `gave_up` becomes the value that was waited for in vain.
void queue_words(Device&, CUstream, CUdeviceptr set, CUdeviceptr wait, const WordLoop&, CUdeviceptr gave_up);
/// Queues (streams, as one launch) or does (CPU threads) so many iterations. Throws Error{timeout} where a CPU thread gave up.
void exchange_flags(const CudaSession&, ActorState&, u32 iterations);
/// Throws Error{timeout} where a GPU's thread gave up waiting since its result was started.
void check_waits(const CudaSession&);
/// Compares a word that was set with the value that it was set to last.
void check_flags(const CudaSession&, const ActorState&, Verdict&);

}  // namespace linkscope
