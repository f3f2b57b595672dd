// Moves one range between a GPU and a ring of pinned memory that CPU threads fill or empty at the same time. One launch
// replaces a call of the driver for each chunk. Blocks take chunks in turn. A block whose CPU threads never come gives up
// after a time-out.
#include "base/actor_ops.hpp"
#include "base/block_words.hpp"
#include "transfer/copy_range.hpp"
#include "transfer/pump_task.hpp"

typedef unsigned long long u64;

/// Waits with all threads of the block. False: the other side has given up, or does not come.
static __device__ __forceinline__ bool wait(const linkscope_pump_task& task, u64 word, u64 value) {
  constexpr u64 between_looks_ns = 100000;
  BlockWords words;
  bool there = threadIdx.x != 0;
  for (u64 waited = 0; !there && waited < task.timeout_ns; waited += between_looks_ns) {
    there = linkscope::poll(words, word, value, between_looks_ns);
    if (!there && words.acquire(task.given_up)) break;
  }
  if (__syncthreads_and(there)) return true;
  if (threadIdx.x == 0) *reinterpret_cast<volatile u64*>(task.given_up) = 1;
  return false;
}

extern "C" __global__ void __launch_bounds__(1024) linkscope_pump(const linkscope_pump_task task, unsigned to_gpu) {
  for (u64 i = blockIdx.x; i < task.chunks; i += gridDim.x) {
    const u64 slot = i % task.slots, at = i * task.chunk, left = task.bytes - at,
              bytes = left < task.chunk ? left : task.chunk;
    const u64 filled = task.filled + slot * task.word_gap, emptied = task.emptied + slot * task.word_gap;
    char* device = reinterpret_cast<char*>(task.device + at);
    char* host = reinterpret_cast<char*>(task.ring + slot * task.stride);
    if (to_gpu) {
      if (!wait(task, filled, i + 1)) return;
      copy_range<uint4>(device, host, bytes, threadIdx.x, blockDim.x);
      BlockWords::set(emptied, i + 1);
    } else {
      if (!wait(task, emptied, i + 1 - task.slots)) return;
      copy_range<uint4>(host, device, bytes, threadIdx.x, blockDim.x);
      BlockWords::set(filled, i + 1);
    }
  }
}
