// The device code that the fake GPUs can run: C++ functions by kernel name.
#pragma once
#include <cuda.h>

#include <functional>
#include <string>

namespace fake {

/// A launch ready to run; its arguments have been copied. Gives what the GPU would report.
using Launch = std::function<CUresult()>;

/// Copies the arguments behind `parameters` for a launch in `context`. Null when the fake knows no such kernel.
using Prepare = std::function<Launch(CUcontext context, void** parameters)>;
[[nodiscard]] const Prepare* find_kernel(const std::string& name);

}  // namespace fake
