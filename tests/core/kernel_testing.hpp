// Launches kernels on the emulated GPU, for the tests of the device code. A test includes this file, then the device
// code in namespace emulated, and nothing after that.
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

// Fewer and more blocks than the work needs; tiles that do and do not end at the end of the memory.
constexpr std::array<Launch, 8> shapes{{{1, 32}, {1, 512}, {2, 96}, {3, 160}, {7, 64}, {2, 1024}, {5, 224}, {132, 64}}};

inline void run(const Launch& shape, const std::function<void()>& kernel, Lanes lanes = Lanes::one_by_one) {
  faults.clear();
  launch(shape.blocks, shape.threads, kernel, lanes);
  for (const auto& what : faults) FAIL_CHECK(what);
}

// Bytes of copies and accesses: parts of a vector, and parts of a tile.
constexpr std::array sizes{8ull, 16ull, 24ull, 1000ull, 4096ull, 1'000'024ull};

/// Calls `check` for each shape whose threads are such a multiple, and each of the sizes.
template <class Check>
void for_all(const Check& check, unsigned threads_multiple_of = 32) {
  for (const auto& [blocks, threads] : shapes)
    for (const u64 bytes : sizes) {
      if (threads % threads_multiple_of) continue;
      CAPTURE(blocks);
      CAPTURE(threads);
      CAPTURE(bytes);
      check(Launch{blocks, threads}, bytes);
    }
}

}  // namespace emulated

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __CUDA_ARCH__ 900
