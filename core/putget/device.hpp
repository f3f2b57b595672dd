// Posters and rings in device code: the memory of a GPU, and the groups of threads that act together. 16-byte accesses are
// whole from compute capability 7.0.
#pragma once
#include "base/pair_words.hpp"
#include "putget/poster.hpp"

namespace linkscope {

/// `count` neighbouring lanes of a warp, a power of two: all of them make each call.
template <unsigned count>
struct Lanes {
  static __device__ __forceinline__ unsigned lane() { return threadIdx.x % count; }
  static __device__ __forceinline__ unsigned size() { return count; }
  static __device__ __forceinline__ void sync() { __syncwarp(mask()); }
  static __device__ __forceinline__ bool all(bool mine) { return __all_sync(mask(), mine); }
  template <class Function>
  static __device__ __forceinline__ RingWord lead(Function function) {
    sync();
    RingWord said = 0;
    if (lane() == 0) said = function();
    sync();
    return __shfl_sync(mask(), said, 0, count);
  }

 private:
  static __device__ __forceinline__ unsigned mask() { return ~0u >> (32 - count) << threadIdx.x % 32 / count * count; }
};
using Warp = Lanes<32>;

/// The threads of a one-dimensional block.
struct Block {
  static __device__ __forceinline__ unsigned lane() { return threadIdx.x; }
  static __device__ __forceinline__ unsigned size() { return blockDim.x; }
  static __device__ __forceinline__ void sync() { __syncthreads(); }
  static __device__ __forceinline__ bool all(bool mine) { return __syncthreads_and(mine); }
  template <class Function>
  static __device__ __forceinline__ RingWord lead(Function function) {
    __shared__ RingWord said;
    __syncthreads();
    if (threadIdx.x == 0) said = function();
    __syncthreads();
    return said;
  }
};

struct DeviceMemoryWords {
  static __device__ __forceinline__ RingWord now_ns() {
    RingWord now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  static __device__ __forceinline__ Pair load_pair(RingWord at) {
    Pair pair;
    load_pair_of_words(at, pair.first, pair.second);
    return pair;
  }
  static __device__ __forceinline__ void store_pair(RingWord at, const Pair& pair) {
    store_pair_of_words(at, pair.first, pair.second);
  }
  static __device__ __forceinline__ RingWord acquire(RingWord at) {
    RingWord value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
  }
  static __device__ __forceinline__ void release(RingWord at, RingWord value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
  }
  static __device__ __forceinline__ void add(RingWord at, RingWord value) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
  }
  static __device__ __forceinline__ bool claim(RingWord at) {
    return atomicCAS_system(reinterpret_cast<RingWord*>(at), RingWord{0}, RingWord{1}) == 0;
  }
  static __device__ __forceinline__ void fence() { __threadfence_system(); }

  /// By all threads of a group; 16 bytes at once where both addresses allow it.
  template <class Group>
  static __device__ __forceinline__ void copy(Group group, RingWord to, RingWord from, RingWord bytes) {
    if ((to | from) % sizeof(uint4) != 0) {
      for (RingWord i = group.lane(); i < bytes; i += group.size())
        reinterpret_cast<volatile char*>(to)[i] = reinterpret_cast<const volatile char*>(from)[i];
      return;
    }
    constexpr unsigned in_flight = 4;
    const RingWord step = group.size(), vectors = bytes / sizeof(uint4);
    auto* target = reinterpret_cast<uint4*>(to);
    const auto* source = reinterpret_cast<const uint4*>(from);
    RingWord i = group.lane();
    for (; i + (in_flight - 1) * step < vectors; i += in_flight * step) {
      uint4 held[in_flight];
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) held[k] = __ldcg(source + i + k * step);
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) __stcg(target + i + k * step, held[k]);
    }
    for (; i < vectors; i += step) __stcg(target + i, __ldcg(source + i));
    for (i = vectors * sizeof(uint4) + group.lane(); i < bytes; i += step)
      reinterpret_cast<volatile char*>(to)[i] = reinterpret_cast<const volatile char*>(from)[i];
  }
};

/// A poster of a thread (OneThread), a Warp or a Block.
template <class Group>
using DevicePoster = Poster<DeviceMemoryWords, Group>;

}  // namespace linkscope
