// Samples of a duration: batches are begun until a common end.
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why the program cannot run for a duration here; "" if it can.
[[nodiscard]] std::string why_no_duration(const CudaSession&);
/// One sample. GPUs are stamped by events, which the first event of each actor ties to the host's clock, and CPU threads
/// by the host's clock.
void sample_duration(CudaSession&, const Duration&, Stamp* stamps, Series* series);

}  // namespace linkscope
