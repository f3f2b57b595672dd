// What was queued: a line each in the file that FAKE_CUDA_LOG names, for tests that look at where a kernel runs, in which
// shape, and what was filled before.
#pragma once
#include <cuda.h>

#include <string>

namespace fake {

/// "WHAT BUS-ID DETAILS"
void log(const char* what, CUcontext where, const std::string& details);

}  // namespace fake
