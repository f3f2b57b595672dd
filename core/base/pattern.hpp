// The contents of source regions: 8-byte words that depend on a seed and their index, the same on CPU, GPU and in the
// simulator's bookkeeping. A seed with its top bit makes words that are numbers in every floating-point format of at least
// 16 bits: as bf16, f16 and f32 their magnitude is 1 to 2, as f64 1/128 to 2. One with its top byte makes bytes that are
// numbers as e4m3, of magnitude 1 to 2. Compiled by g++ and by NVRTC, so nothing but the language is used here.
#pragma once

#ifdef __CUDACC__
#define LINKSCOPE_BOTH __device__ __forceinline__
#else
#define LINKSCOPE_BOTH inline
#endif

LINKSCOPE_BOTH unsigned long long linkscope_pattern_word(unsigned long long seed, unsigned long long index) {
  unsigned long long x = (index + 1) * 0x9E3779B97F4A7C15ull ^ seed;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 32;
  const bool bytes = seed >> 56 == 0xFF, numbers = seed >> 63;
  const unsigned long long keep = bytes ? 0x8787878787878787ull : numbers ? 0x807F807F807F807Full : ~0ull;
  const unsigned long long set = bytes ? 0x3838383838383838ull : numbers ? 0x3F803F803F803F80ull : 0;
  return (x & keep) | set;
}
