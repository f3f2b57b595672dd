// 16 bytes that device code reads or writes at once, without any order. They are whole from compute capability 7.0.
#pragma once

static __device__ __forceinline__ void load_pair_of_words(unsigned long long at, unsigned long long& x,
                                                          unsigned long long& y) {
#if __CUDA_ARCH__ >= 700
  asm volatile("{ .reg .b128 both; ld.relaxed.sys.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
               : "=l"(x), "=l"(y)
               : "l"(at)
               : "memory");
#else
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(x), "=l"(y) : "l"(at) : "memory");
#endif
}

static __device__ __forceinline__ void store_pair_of_words(unsigned long long at, unsigned long long x,
                                                           unsigned long long y) {
#if __CUDA_ARCH__ >= 700
  asm volatile("{ .reg .b128 both; mov.b128 both, {%1, %2}; st.relaxed.sys.global.b128 [%0], both; }" ::"l"(at), "l"(x),
               "l"(y)
               : "memory");
#else
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(x), "l"(y) : "memory");
#endif
}
