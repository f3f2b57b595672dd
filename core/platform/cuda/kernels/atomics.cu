// Additions to words of memory by atomic operations, ordered for the GPU's threads or for the whole system.
typedef unsigned long long u64;

// Results are not used, so operations are independent. With `mask` 0 all are to the first word, otherwise each to its
// own.
extern "C" __global__ void __launch_bounds__(1024) linkscope_add(u64* words, u64 additions, u64 mask, unsigned system) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < additions; i += step) {
    u64* word = words + (i & mask);
    if (system) asm volatile("red.sys.global.add.u64 [%0], 1;" ::"l"(word) : "memory");
    else asm volatile("red.gpu.global.add.u64 [%0], 1;" ::"l"(word) : "memory");
  }
}

// One thread; the place of each addition depends on the result of the one before, though it is always the same word.
extern "C" __global__ void linkscope_add_chain(u64* word, u64 steps, unsigned system) {
  u64* at = word;
  for (u64 i = 0; i < steps; ++i) {
    u64 found;
    if (system) asm volatile("atom.sys.global.add.u64 %0, [%1], 1;" : "=l"(found) : "l"(at) : "memory");
    else asm volatile("atom.gpu.global.add.u64 %0, [%1], 1;" : "=l"(found) : "l"(at) : "memory");
    at = word + (found >> 63);
  }
}
