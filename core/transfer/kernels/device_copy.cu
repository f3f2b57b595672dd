// One range between memories of GPUs: by the threads of many SMs, or by the Tensor Memory Accelerator of each.
#include "base/bulk_copy.hpp"
#include "transfer/copy_range.hpp"

typedef unsigned long long u64;

static __device__ __forceinline__ u64 number(const void* address) { return reinterpret_cast<u64>(address); }

extern "C" __global__ void __launch_bounds__(1024) linkscope_copy_by_sm(char* to, const char* from, u64 bytes) {
  const unsigned lane = blockIdx.x * blockDim.x + threadIdx.x, lanes = gridDim.x * blockDim.x;
  const u64 skew = number(to) ^ number(from);
  if (skew % 16 == 0) copy_range<uint4>(to, from, bytes, lane, lanes);
  else if (skew % 4 == 0) copy_range<unsigned>(to, from, bytes, lane, lanes);
  else copy_shifted(to, from, bytes, lane, lanes);
}

// Both ends have the same offset within 16 bytes. Threads move what is before and behind the whole 16 bytes.
extern "C" __global__ void linkscope_copy_by_tma(char* to, const char* from, u64 bytes) {
  const u64 before = (16 - number(to) % 16) % 16, head = before < bytes ? before : bytes,
            whole = (bytes - head) / 16 * 16, done = head + whole;
  bulk_copy(to + head, from + head, whole);
  if (blockIdx.x != 0) return;
  copy_words<char>(to, from, head, threadIdx.x, blockDim.x);
  copy_words<char>(to + done, from + done, bytes - done, threadIdx.x, blockDim.x);
}
