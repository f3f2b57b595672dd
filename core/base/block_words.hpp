// Words that a GPU's block exchanges with CPU threads and other blocks, as device code. Before compute capability 7.0,
// volatile accesses and fences replace release and acquire.
#pragma once
#include "base/pair_words.hpp"

// The block's threads arrive together. A block of one thread has nobody to wait for.
static __device__ __forceinline__ void join_block() {
  if (blockDim.x > 1) __syncthreads();
}

struct BlockWords {
  static __device__ __forceinline__ unsigned long long now_ns() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
  }

  static __device__ __forceinline__ unsigned long long acquire(unsigned long long word) {
    unsigned long long value;
#if __CUDA_ARCH__ >= 700
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                 : "=l"(value)
                 : "l"(reinterpret_cast<const unsigned long long*>(word))
                 : "memory");
#else
    value = *reinterpret_cast<const volatile unsigned long long*>(word);
    __threadfence_system();
#endif
    return value;
  }

  static __device__ __forceinline__ void look(unsigned long long at, unsigned long long& x, unsigned long long& y) {
    load_pair_of_words(at, x, y);
  }

  static __device__ __forceinline__ void tell(unsigned long long at, unsigned long long x, unsigned long long y) {
    store_pair_of_words(at, x, y);
  }

  // The barrier orders the other threads' stores before the release, which is cumulative from compute capability 7.0.
  static __device__ __forceinline__ void set(unsigned long long word, unsigned long long value) {
#if __CUDA_ARCH__ >= 700
    join_block();
    if (threadIdx.x == 0)
      asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(reinterpret_cast<unsigned long long*>(word)), "l"(value)
                   : "memory");
#else
    __threadfence_system();
    join_block();
    if (threadIdx.x == 0) *reinterpret_cast<volatile unsigned long long*>(word) = value;
#endif
  }
};
