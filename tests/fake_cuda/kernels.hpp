// The kernels of the fake GPUs: C++ functions by kernel name.
#pragma once
#include <cuda.h>

#include <functional>
#include <string>

namespace fake {

/// A launch with copied arguments, ready to run. Returns the status that the GPU would report.
using Launch = std::function<CUresult()>;

/// Copies the arguments in `parameters` for a launch in `context`. find_kernel returns null for an unknown kernel.
using Prepare = std::function<Launch(CUcontext context, void** parameters)>;
[[nodiscard]] const Prepare* find_kernel(const std::string& name);

}  // namespace fake
