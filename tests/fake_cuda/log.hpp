// One line per queued operation in the file that FAKE_CUDA_LOG names. Tests check on which GPU a kernel runs, its
// launch shape, and the fills before it.
#pragma once
#include <cuda.h>

#include <string>

namespace fake {

/// "WHAT BUS-ID DETAILS"
void log(const char* what, CUcontext where, const std::string& details);

}  // namespace fake
