// Fills a region with its pattern and compares a region, or rows in it, with the pattern; 8 bytes per thread and step.
#include "base/pattern.hpp"
#include "program/row_order.hpp"

extern "C" __global__ void linkscope_fill(unsigned long long* p, unsigned long long words, unsigned long long seed,
                                          unsigned long long first_index) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
    p[i] = linkscope_pattern_word(seed, first_index + i);
}

// result[0] counts the wrong words, result[1] is the lowest index of one.
extern "C" __global__ void linkscope_check(const unsigned long long* p, unsigned long long words,
                                           unsigned long long seed, unsigned long long first_index,
                                           unsigned long long* result) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
    if (p[i] != linkscope_pattern_word(seed, first_index + i)) {
      atomicAdd(&result[0], 1ull);
      atomicMin(&result[1], i);
    }
  }
}

// The same for slices with rows and gaps: `words` counts those of all slices.
extern "C" __global__ void linkscope_check_rows(const unsigned long long* p, unsigned long long words,
                                                linkscope_row_copy copy, unsigned long long* result) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
    if (p[i] != linkscope_row_word(copy, 8 * i)) {
      atomicAdd(&result[0], 1ull);
      atomicMin(&result[1], i);
    }
  }
}
