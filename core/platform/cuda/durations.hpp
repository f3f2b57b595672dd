// Samples of a duration: batches are begun until a common end.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why the program cannot run for a duration here; "" if it can.
[[nodiscard]] std::string why_no_duration(const CudaSession&);
/// The batches that an actor's stream queues: 3, so that a GPU never waits for its host thread. 1 where another stream
/// copies in the same direction by the copy engines of the same GPU, which serve one stream until its queue is empty.
[[nodiscard]] u32 batches_ahead(const Program&, u32 actor);
/// One sample. GPUs are stamped by events, which the first event of each actor ties to the host's clock, and CPU threads
/// by the host's clock.
void sample_duration(CudaSession&, const Duration&, Stamp* stamps, Series* series);

}  // namespace linkscope
