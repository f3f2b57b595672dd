// Words that one side sets and the other polls.
#pragma once
#include "host/words.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Whether an actor's loop sets and waits for words.
[[nodiscard]] bool exchanges_flags(const Actor&);
/// Why an actor cannot set and wait for these words here; "" if it can.
[[nodiscard]] std::string why_no_flags(const Program&, const Actor&);

[[nodiscard]] CUfunction flag_code(Device&);
/// Queues them on a GPU's stream as one launch: `gave_up` receives the value that was waited for in vain.
void queue_words(Device&, CUstream, CUdeviceptr set, CUdeviceptr wait, const WordLoop&, CUdeviceptr gave_up);
/// Queues (streams, as one launch) or runs (CPU threads) that many iterations. Throws Error{timeout} if a CPU thread
/// gave up.
void exchange_flags(const CudaSession&, ActorState&, u32 iterations);
/// Throws Error{timeout} if a GPU's thread gave up waiting since its result was reset.
void check_waits(const CudaSession&);
/// Compares a word with the value that it was set to last.
void check_flags(const CudaSession&, const ActorState&, Verdict&);

}  // namespace linkscope
