// Copies between memories of GPUs by a kernel: by the threads of SMs, or by their Tensor Memory Accelerators (TMA).
#pragma once
#include "transfer/methods.hpp"

namespace linkscope {

/// Within the memory of the stream's GPU.
[[nodiscard]] bool fits_within_gpu(const Resources&, const PlannedCopy&);
void copy_within_gpu(const Resources&, const PlannedCopy&, Progress&);

/// Between the stream's GPU and another one, whose memory it reaches.
[[nodiscard]] bool fits_between_peers(const Resources&, const PlannedCopy&);
void copy_between_peers(const Resources&, const PlannedCopy&, Progress&);

}  // namespace linkscope
