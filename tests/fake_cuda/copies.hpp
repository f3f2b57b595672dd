// Copies as a stream's thread makes them, also where a graph's launch queues them.
#pragma once
#include <cuda.h>

#include <functional>

namespace fake {

/// What makes the copy, as far as it can be made; otherwise the error of the call that asks for it.
CUresult work_of(const CUDA_MEMCPY3D&, std::function<void()>& work);

}  // namespace fake
