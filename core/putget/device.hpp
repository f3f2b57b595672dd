// Posters and rings in device code: the memory of a GPU, and the groups of threads that act together. 16-byte accesses are
// whole from compute capability 7.0.
#pragma once
#include "base/bulk_copy.hpp"
#include "base/pair_words.hpp"
#include "putget/poster.hpp"
#include "putget/verbs_device.hpp"

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
  template <class Function>
  static __device__ __forceinline__ void after_all(Function function) {
    sync();
    if (lane() == 0) function();
  }

 private:
  static __device__ __forceinline__ unsigned mask() { return ~0u >> (32 - count) << threadIdx.x % 32 / count * count; }
};
using Warp = Lanes<32>;

/// The threads of a one-dimensional block.
struct Block {
  static __device__ __forceinline__ unsigned lane() { return threadIdx.x; }
  static __device__ __forceinline__ unsigned size() { return blockDim.x; }
  static __device__ __forceinline__ unsigned part() { return 0; }
  static __device__ __forceinline__ unsigned parts() { return 1; }
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
  template <class Function>
  static __device__ __forceinline__ void after_all(Function function) {
    __syncthreads();
    if (threadIdx.x == 0) function();
  }
};

/// All blocks of a one-dimensional grid, which post together: a put by many blocks is as fast as the link. They must run at
/// the same time, so there are at most as many as the GPU has SMs, or the launch is cooperative. A grid whose blocks do not
/// meet within 20 s ends with an error of the driver, so its waits are shorter. A put reads what its own block wrote before;
/// what other blocks wrote is there after `flush`. `words`: `bytes` of this GPU's memory, zero before the launch.
struct Grid {
  RingWord words;
  RingWord calls = 0;  // of after_all

  static constexpr RingWord ahead = 8;  // so many calls of after_all may wait for the slowest block
  static constexpr RingWord bytes = (3 + ahead) * sizeof(RingWord);

  static __device__ __forceinline__ unsigned lane() { return blockIdx.x * blockDim.x + threadIdx.x; }
  static __device__ __forceinline__ unsigned size() { return gridDim.x * blockDim.x; }
  static __device__ __forceinline__ unsigned part() { return blockIdx.x; }
  static __device__ __forceinline__ unsigned parts() { return gridDim.x; }
  __device__ __noinline__ void sync() const {
    __syncthreads();
    if (threadIdx.x == 0) meet();
    __syncthreads();
  }
  template <class Function>
  __device__ __forceinline__ RingWord lead(Function function) const {
    sync();
    auto* said = reinterpret_cast<volatile RingWord*>(word(1));
    if (lane() == 0) *said = function();
    sync();
    return *said;
  }
  /// The block that comes last calls the function, and no other waits for it. Calls take effect in their order.
  template <class Function>
  __device__ __forceinline__ void after_all(Function function) {
    __syncthreads();
    if (threadIdx.x == 0) {
      const RingWord arrivals = word(3 + calls % ahead), done = word(2);
      if (calls >= ahead) wait_for(done, calls - ahead + 1);  // the latest use of `arrivals` has ended
      if (arrive(arrivals) + 1 == gridDim.x) {
        wait_for(done, calls);
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(arrivals), "l"(RingWord{0}) : "memory");
        function();
        asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(done), "l"(calls + 1) : "memory");
      }
    }
    ++calls;
  }

 private:
  [[nodiscard]] __device__ __forceinline__ RingWord word(RingWord number) const {
    return words + number * sizeof(RingWord);
  }
  /// Adds one, and returns the number before. Who comes later sees what this block did.
  static __device__ __forceinline__ RingWord arrive(RingWord at) {
    RingWord before;
    __threadfence();
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(at) : "memory");
    return before;
  }
  /// Each arrival is a release and the last look an acquire, so that all blocks see what any of them did before.
  __device__ __forceinline__ void meet() const { wait_for(words, (arrive(words) / gridDim.x + 1) * gridDim.x); }
  static __device__ __forceinline__ void wait_for(RingWord at, RingWord least) {
    constexpr RingWord patience_ns = 20'000'000'000;
    constexpr unsigned looks = 256;
    RingWord start, now, found;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
      LINKSCOPE_ROLLED
      for (unsigned i = 0; i < looks; ++i) {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(at) : "memory");
        if (found >= least) return;
      }
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start <= patience_ns);
    __trap();
  }
};

struct DeviceMemoryWords {
  using Card = CardFromGpu;
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

/// Memory whose large copies are made by TMA: compute capability 9.0 and later. Each block has a BulkBuffer in shared memory
/// for all of its calls. Threads move what is not aligned to 16 bytes.
struct BulkWords : DeviceMemoryWords {
  BulkCopies bulk;

  /// All threads of the block.
  explicit __device__ __forceinline__ BulkWords(BulkBuffer* buffer) : bulk{buffer, 0} {
    if (threadIdx.x == 0) bulk.start();
    __syncthreads();
  }
  template <class Group>
  __device__ __forceinline__ void copy(Group group, RingWord to, RingWord from, RingWord bytes) {
    constexpr unsigned unit = sizeof(uint4);
    if ((to ^ from) % unit != 0) return DeviceMemoryWords::copy(group, to, from, bytes);
    const RingWord ahead = (unit - to % unit) % unit, head = ahead < bytes ? ahead : bytes;
    const RingWord whole = (bytes - head) / unit * unit, tail = head + whole;
    __syncthreads();  // the first thread of each block copies what the others wrote
    if (threadIdx.x == 0) bulk.copy(to + head, from + head, whole, group.part(), group.parts());
    DeviceMemoryWords::copy(group, to, from, head);
    DeviceMemoryWords::copy(group, to + tail, from + tail, bytes - tail);
  }
};

/// A poster of a thread (OneThread), a Warp, a Block or a Grid; one whose blocks copy by TMA.
template <class Group>
using DevicePoster = Poster<DeviceMemoryWords, Group>;
template <class Group>
using BulkPoster = Poster<BulkWords, Group>;

}  // namespace linkscope
