// A kernel of a loaded module, and how a stream runs it.
#pragma once
#include <cuda.h>

#include <string>

#include "faults.hpp"
#include "kernels.hpp"

struct CUfunc_st {
  CUcontext context = nullptr;
  const fake::Prepare* prepare = nullptr;
  std::string name;
  int max_shared_bytes = 48 << 10;
};

namespace fake {

/// A lost GPU runs nothing. A launch that fails loses the GPU.
inline void run(const Launch& launch) {
  if (lost() != CUDA_SUCCESS) return;
  if (const CUresult status = launch(); status != CUDA_SUCCESS) lose(status);
}

}  // namespace fake
