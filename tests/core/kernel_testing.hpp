// What tests of the device code itself share: how a kernel is launched on the emulated GPU. Whoever includes this includes
// the code next, in namespace emulated, and nothing behind it.
#pragma once
#include <doctest.h>

#include <array>
#include <functional>

#include "emulated_gpu.hpp"
#include "sim_testing.hpp"

namespace emulated {

struct Launch {
  unsigned blocks, threads;
};

// Fewer and more blocks than there is work for; tiles that end where the memory ends, and such that do not.
constexpr std::array<Launch, 8> shapes{
    {{1, 32}, {1, 512}, {2, 96}, {3, 160}, {7, 64}, {8, 1024}, {5, 224}, {132, 512}}};

inline void run(const Launch& shape, const std::function<void()>& kernel, Lanes lanes = Lanes::one_by_one) {
  faults.clear();
  launch(shape.blocks, shape.threads, kernel, lanes);
  for (const auto& what : faults) FAIL_CHECK(what);
}

}  // namespace emulated

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __CUDA_ARCH__ 900
