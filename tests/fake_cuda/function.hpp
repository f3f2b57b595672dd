// A kernel of a loaded module, and how a stream runs one.
#pragma once
#include <cuda.h>

#include <string>

#include "faults.hpp"
#include "kernels.hpp"

struct CUfunc_st {
  CUcontext context = nullptr;
  const fake::Prepare* prepare = nullptr;
  std::string name;
  int most_shared_bytes = 48 << 10;
};

namespace fake {

/// On a GPU that is lost nothing runs; a launch that fails loses it.
inline void run(const Launch& launch) {
  if (lost() != CUDA_SUCCESS) return;
  if (const CUresult status = launch(); status != CUDA_SUCCESS) lose(status);
}

}  // namespace fake
