// Copies by the tensor memory accelerator (TMA) of a block, as device code: one thread sends pieces through shared memory,
// of which two are fetched while one is written. Compute capability 9.0 and later.
#pragma once

struct BulkBuffer {
  // Each kernel may have 48 KiB of shared memory, with what it needs besides.
  static constexpr unsigned stages = 3, piece = 15 << 10;
  alignas(128) char held[stages][piece];
  alignas(8) unsigned long long arrived[stages];
};

/// The first thread of a block makes all calls.
struct BulkCopies {
  BulkBuffer* buffer;
  unsigned long long fetched;  // pieces since the barriers were made, whose phases go on from copy to copy

  static __device__ __forceinline__ unsigned shared(const void* at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
  }

  /// Once, before the first copy.
  __device__ __forceinline__ void start() {
    fetched = 0;
#if __CUDA_ARCH__ >= 900
    for (unsigned stage = 0; stage < BulkBuffer::stages; ++stage)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&buffer->arrived[stage])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }

  /// Copies every `parts`-th piece, from piece `part`. Addresses and bytes are multiples of 16. All is written at the end.
  __device__ __forceinline__ void copy(unsigned long long to, unsigned long long from, unsigned long long bytes,
                                       unsigned part, unsigned parts) {
#if __CUDA_ARCH__ >= 900
    constexpr unsigned long long size = BulkBuffer::piece;
    constexpr unsigned stages = BulkBuffer::stages;
    const unsigned long long pieces = (bytes + size - 1) / size;
    const unsigned long long mine = pieces > part ? (pieces - part + parts - 1) / parts : 0, first = fetched;
    const auto offset = [&](unsigned long long i) { return (part + i * parts) * size; };
    const auto length = [&](unsigned long long i) {
      return static_cast<unsigned>(bytes - offset(i) < size ? bytes - offset(i) : size);
    };
    const auto fetch = [&](unsigned long long i) {
      const unsigned stage = (first + i) % stages, barrier = shared(&buffer->arrived[stage]);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(length(i)) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       shared(buffer->held[stage])),
                   "l"(reinterpret_cast<const char*>(from + offset(i))), "r"(length(i)), "r"(barrier)
                   : "memory");
    };
    asm volatile("fence.proxy.async;" ::: "memory");  // what was written or seen by loads and stores so far
    for (unsigned long long i = 0; i < stages - 1 && i < mine; ++i) fetch(i);
    for (unsigned long long i = 0; i < mine; ++i) {
      // The piece after the next reuses the buffer of the previous one, once its store has read it.
      if (i + stages - 1 < mine) {
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        fetch(i + stages - 1);
      }
      const unsigned stage = (first + i) % stages, parity = (first + i) / stages % 2;
      unsigned done = 0;
      while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared(&buffer->arrived[stage])), "r"(parity)
                     : "memory");
      asm volatile(
          "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(reinterpret_cast<char*>(to + offset(i))),
          "r"(shared(buffer->held[stage])), "r"(length(i))
          : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    fetched = first + mine;
#endif
  }
};

/// Moves `whole` bytes by all blocks of a kernel; addresses and bytes are multiples of 16.
static __device__ __forceinline__ void bulk_copy(char* to, const char* from, unsigned long long whole) {
#if __CUDA_ARCH__ >= 900
  __shared__ BulkBuffer buffer;
  if (threadIdx.x != 0) return;
  BulkCopies copies{&buffer, 0};
  copies.start();
  copies.copy(reinterpret_cast<unsigned long long>(to), reinterpret_cast<unsigned long long>(from), whole, blockIdx.x,
              gridDim.x);
#endif
}
