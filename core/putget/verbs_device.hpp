// How a thread of a GPU reaches the queues of a network card (verbs.hpp), as device code. Queues and records lie in the
// GPU's memory or in mapped host memory; the doorbell is a register of the card, mapped for the GPU.
#pragma once
#include "putget/verbs.hpp"

struct CardFromGpu {
  static __device__ __forceinline__ void store(unsigned long long at, const linkscope::verbs::Segment& segment) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(segment.words[0]), "r"(segment.words[1]),
                 "r"(segment.words[2]), "r"(segment.words[3])
                 : "memory");
  }
  static __device__ __forceinline__ void store(unsigned long long at, unsigned value) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
  }
  static __device__ __forceinline__ linkscope::verbs::Segment load(unsigned long long at) {
    linkscope::verbs::Segment segment;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(segment.words[0]), "=r"(segment.words[1]), "=r"(segment.words[2]), "=r"(segment.words[3])
                 : "l"(at)
                 : "memory");
    return segment;
  }
  static __device__ __forceinline__ unsigned char byte(unsigned long long at) {
    return *reinterpret_cast<const unsigned char*>(at);
  }
  static __device__ __forceinline__ unsigned long long acquire(unsigned long long at) {
    unsigned long long value;
#if __CUDA_ARCH__ >= 700
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                 : "=l"(value)
                 : "l"(reinterpret_cast<const unsigned long long*>(at))
                 : "memory");
#else
    value = *reinterpret_cast<const volatile unsigned long long*>(at);
    __threadfence_system();
#endif
    return value;
  }
  static __device__ __forceinline__ void fence() {
#if __CUDA_ARCH__ >= 700
    asm volatile("fence.acq_rel.sys;" ::: "memory");  // that of the language is sequentially consistent and slower
#else
    __threadfence_system();
#endif
  }
  static __device__ __forceinline__ void record(unsigned long long at, unsigned value) {
    asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
  }
  static __device__ __forceinline__ void ring(unsigned long long at, unsigned long long value) {
    asm volatile("st.volatile.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
  }
};
