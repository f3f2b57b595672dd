// Copies that a stream's thread makes. Graph launches queue them too.
#pragma once
#include <cuda.h>

#include <functional>

namespace fake {

/// Sets `work` to a function that makes the copy. Returns the error of the call if the copy is invalid.
CUresult work_of(const CUDA_MEMCPY3D&, std::function<void()>& work);

}  // namespace fake
