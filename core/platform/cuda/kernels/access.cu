// A GPU's own accesses to memory, its own or another's: reading, writing, and following a chain of addresses. What they
// leave behind is checked: the sum of what was read, the pattern that was written, where the chase stands.
#include "program/chain.hpp"
#include "program/pattern.hpp"

typedef unsigned long long u64;

// Spans are multiples of 8 bytes; 16 bytes an access and four in flight a thread, neighbours side by side.
extern "C" __global__ void __launch_bounds__(1024) linkscope_read(const char* from, u64 bytes, u64* sum) {
  constexpr unsigned in_flight = 4;
  const u64 vectors = bytes / 16, tile = u64{blockDim.x} * in_flight;
  const ulonglong2* source = reinterpret_cast<const ulonglong2*>(from);
  u64 mine = 0;
  const auto load = [&](u64 i) {
    u64 x, y;
    asm volatile("ld.global.cs.v2.u64 {%0, %1}, [%2];" : "=l"(x), "=l"(y) : "l"(source + i));
    return ulonglong2{x, y};
  };
  for (u64 first = blockIdx.x * tile; first < vectors; first += gridDim.x * tile) {
    const u64 at = first + threadIdx.x;
    if (first + tile <= vectors) {
      ulonglong2 held[in_flight];
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) held[k] = load(at + k * blockDim.x);
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) mine += held[k].x + held[k].y;
    } else {
      for (u64 i = at; i < vectors; i += blockDim.x) {
        const ulonglong2 held = load(i);
        mine += held.x + held.y;
      }
    }
  }
  if (bytes % 16 && blockIdx.x == 0 && threadIdx.x == 0) mine += *reinterpret_cast<const u64*>(from + bytes - 8);
  for (unsigned lanes = 16; lanes; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
  if (threadIdx.x % 32 == 0 && mine) atomicAdd(sum, mine);
}

// Writes the pattern of `seed` as it stands from word `first_index` on.
extern "C" __global__ void __launch_bounds__(1024) linkscope_write(char* to, u64 bytes, u64 seed, u64 first_index) {
  const u64 vectors = bytes / 16, step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
    const u64 x = linkscope_pattern_word(seed, first_index + 2 * i), y = linkscope_pattern_word(seed, first_index + 2 * i + 1);
    asm volatile("st.global.cs.v2.u64 [%0], {%1, %2};" ::"l"(to + 16 * i), "l"(x), "l"(y) : "memory");
  }
  if (bytes % 16 && blockIdx.x == 0 && threadIdx.x == 0)
    *reinterpret_cast<u64*>(to + bytes - 8) = linkscope_pattern_word(seed, first_index + bytes / 8 - 1);
}

// What reading the words so many times adds up to.
extern "C" __global__ void linkscope_sum_pattern(u64 words, u64 seed, u64 first_index, u64 times, u64* sum) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  u64 mine = 0;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) mine += linkscope_pattern_word(seed, first_index + i);
  if (mine) atomicAdd(sum, mine * times);
}

// One thread; each load needs the one before. Loads go past the L1, in which a line of an earlier launch might still be.
extern "C" __global__ void linkscope_chase(u64* position, u64 steps) {
  u64 at = *position;
  for (u64 i = 0; i < steps; ++i) asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(at) : "l"(at));
  *position = at;
}

extern "C" __global__ void linkscope_fill_chain(char* region, u64 lines) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < lines; i += step)
    *reinterpret_cast<u64*>(region + i * linkscope_chain_line) = reinterpret_cast<u64>(region) + linkscope_chain_next(i, lines) * linkscope_chain_line;
}
