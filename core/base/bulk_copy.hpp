// A copy by the Tensor Memory Accelerator (TMA), as device code. Compute capability 9.0 and later; empty below, where no
// kernel that calls it is launched.
#pragma once

/// Moves `whole` bytes by all blocks of the grid; addresses and bytes are multiples of 16. One thread of each block sends
/// pieces through shared memory; two pieces are fetched while one is written.
static __device__ __forceinline__ void bulk_copy(char* to, const char* from, unsigned long long whole) {
#if __CUDA_ARCH__ >= 900
  constexpr unsigned piece = 16384, stages = 3;
  // Static shared memory is limited to 48 KiB, including the barriers.
  __shared__ alignas(128) char held[stages][piece - 128];
  __shared__ alignas(8) unsigned long long arrived[stages];
  constexpr unsigned size = piece - 128;
  if (threadIdx.x != 0) return;
  const unsigned long long pieces = (whole + size - 1) / size,
                           mine = pieces > blockIdx.x ? (pieces - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  const auto shared = [](const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); };
  const auto offset = [&](unsigned long long i) { return (blockIdx.x + i * gridDim.x) * size; };
  const auto length = [&](unsigned long long i) {
    return static_cast<unsigned>(whole - offset(i) < size ? whole - offset(i) : size);
  };
  const auto fetch = [&](unsigned long long i) {
    const unsigned stage = i % stages, barrier = shared(&arrived[stage]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(length(i)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared(held[stage])),
                 "l"(from + offset(i)), "r"(length(i)), "r"(barrier)
                 : "memory");
  };
  for (unsigned stage = 0; stage < stages; ++stage)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&arrived[stage])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  for (unsigned long long i = 0; i < stages - 1 && i < mine; ++i) fetch(i);
  for (unsigned long long i = 0; i < mine; ++i) {
    // The piece after the next reuses the buffer of the previous one, once its store has read it.
    if (i + stages - 1 < mine) {
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      fetch(i + stages - 1);
    }
    const unsigned stage = i % stages, parity = i / stages % 2;
    unsigned done = 0;
    while (!done)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(shared(&arrived[stage])), "r"(parity)
                   : "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + offset(i)),
                 "r"(shared(held[stage])), "r"(length(i))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}
