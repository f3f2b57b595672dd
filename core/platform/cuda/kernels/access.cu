// A GPU's accesses to memory, its own or another's: reading, writing, and following a chain of addresses. The results
// are checked: the sum of what was read, the pattern that was written, the end of the chase.
#include "base/pattern.hpp"
#include "program/chain.hpp"
#include "program/line_order.hpp"

typedef unsigned long long u64;

// One atomic addition per warp. All its threads arrive here together.
static __device__ __forceinline__ void add_up(u64 mine, u64* sum) {
  for (unsigned lanes = 16; lanes; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
  if (threadIdx.x % 32 == 0 && mine) atomicAdd(sum, mine);
}

// Spans are multiples of 8 bytes. Each thread has four accesses of 16 bytes in flight; neighbouring threads access
// neighbouring bytes.
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
  add_up(mine, sum);
}

// Writes the pattern of `seed` from word `first_index`.
extern "C" __global__ void __launch_bounds__(1024) linkscope_write(char* to, u64 bytes, u64 seed, u64 first_index) {
  const u64 vectors = bytes / 16, step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
    const u64 x = linkscope_pattern_word(seed, first_index + 2 * i),
              y = linkscope_pattern_word(seed, first_index + 2 * i + 1);
    asm volatile("st.global.cs.v2.u64 [%0], {%1, %2};" ::"l"(to + 16 * i), "l"(x), "l"(y) : "memory");
  }
  if (bytes % 16 && blockIdx.x == 0 && threadIdx.x == 0)
    *reinterpret_cast<u64*>(to + bytes - 8) = linkscope_pattern_word(seed, first_index + bytes / 8 - 1);
}

// The sum of the words that are read that many times.
extern "C" __global__ void linkscope_sum_pattern(u64 words, u64 seed, u64 first_index, u64 times, u64* sum) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  u64 mine = 0;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step)
    mine += linkscope_pattern_word(seed, first_index + i);
  add_up(mine * times, sum);
}

// --- accesses of any width: contiguous, strided or random ---------------------------------------------------------

static __device__ __forceinline__ unsigned load_one(const unsigned* at) {
  unsigned value;
  asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(value) : "l"(at));
  return value;
}

static __device__ __forceinline__ u64 load_one(const u64* at) {
  u64 value;
  asm volatile("ld.global.cs.u64 %0, [%1];" : "=l"(value) : "l"(at));
  return value;
}

static __device__ __forceinline__ ulonglong2 load_one(const ulonglong2* at) {
  u64 x, y;
  asm volatile("ld.global.cs.v2.u64 {%0, %1}, [%2];" : "=l"(x), "=l"(y) : "l"(at));
  return ulonglong2{x, y};
}

static __device__ __forceinline__ u64 sum_one(unsigned value) { return value; }
static __device__ __forceinline__ u64 sum_one(u64 value) { return value; }
static __device__ __forceinline__ u64 sum_one(const ulonglong2& value) { return value.x + value.y; }

static __device__ __forceinline__ void store_one(unsigned* at, u64 seed, u64 byte) {
  const u64 word = linkscope_pattern_word(seed, byte / 8);
  const unsigned value = static_cast<unsigned>(byte % 8 ? word >> 32 : word);
  asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

static __device__ __forceinline__ void store_one(u64* at, u64 seed, u64 byte) {
  const u64 word = linkscope_pattern_word(seed, byte / 8);
  asm volatile("st.global.cs.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}

static __device__ __forceinline__ void store_one(ulonglong2* at, u64 seed, u64 byte) {
  const u64 x = linkscope_pattern_word(seed, byte / 8), y = linkscope_pattern_word(seed, byte / 8 + 1);
  asm volatile("st.global.cs.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(x), "l"(y) : "memory");
}

// The place of access i: the first bytes of every `stride`, in order or random.
struct Lines {
  u64 count, stride, mask;
  unsigned half;
  bool random;
  __device__ __forceinline__ u64 offset(u64 i) const {
    return (random ? linkscope_line_at(i, count, mask, half) : i) * stride;
  }
};

static __device__ __forceinline__ Lines lines_of(u64 count, u64 stride, unsigned random) {
  const u64 mask = linkscope_line_mask(count);
  return Lines{count, stride, mask, linkscope_line_half(mask), random != 0};
}

// Four loads in flight per thread, as in linkscope_read.
template <class T>
static __device__ __forceinline__ void read_lines(const char* from, const Lines& lines, u64* sum) {
  constexpr unsigned in_flight = 4;
  const u64 tile = u64{blockDim.x} * in_flight;
  const auto load = [&](u64 i) { return load_one(reinterpret_cast<const T*>(from + lines.offset(i))); };
  u64 mine = 0;
  for (u64 first = blockIdx.x * tile; first < lines.count; first += gridDim.x * tile) {
    const u64 at = first + threadIdx.x;
    if (first + tile <= lines.count) {
      T held[in_flight];
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) held[k] = load(at + k * blockDim.x);
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) mine += sum_one(held[k]);
    } else {
      for (u64 i = at; i < lines.count; i += blockDim.x) mine += sum_one(load(i));
    }
  }
  add_up(mine, sum);
}

// The pattern from byte `first`.
template <class T>
static __device__ __forceinline__ void write_lines(char* to, const Lines& lines, u64 seed, u64 first) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < lines.count; i += step) {
    const u64 offset = lines.offset(i);
    store_one(reinterpret_cast<T*>(to + offset), seed, first + offset);
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    linkscope_read_lines(const char* from, u64 count, u64 stride, unsigned width, unsigned random, u64* sum) {
  const Lines lines = lines_of(count, stride, random);
  if (width == 4) read_lines<unsigned>(from, lines, sum);
  else if (width == 8) read_lines<u64>(from, lines, sum);
  else read_lines<ulonglong2>(from, lines, sum);
}

extern "C" __global__ void __launch_bounds__(1024)
    linkscope_write_lines(char* to, u64 count, u64 stride, unsigned width, unsigned random, u64 seed, u64 first) {
  const Lines lines = lines_of(count, stride, random);
  if (width == 4) write_lines<unsigned>(to, lines, seed, first);
  else if (width == 8) write_lines<u64>(to, lines, seed, first);
  else write_lines<ulonglong2>(to, lines, seed, first);
}

// The part of a word that accesses request: all of it, its lower half, or nothing.
static __device__ __forceinline__ u64 asked_part(u64 byte, u64 count, u64 stride, u64 width) {
  const u64 line = byte / stride, within = byte % stride;
  if (line >= count || within >= width) return 0;
  return width == 4 ? 0xFFFFFFFFull : ~0ull;
}

// The sum of the lines that are read that many times; for words read by halves, each half counts separately.
extern "C" __global__ void linkscope_sum_lines(u64 count, u64 stride, u64 width, u64 seed, u64 first, u64 times,
                                               u64* sum) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  u64 mine = 0;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    for (u64 at = 0; at < width; at += 8) {
      const u64 byte = first + i * stride + at, word = linkscope_pattern_word(seed, byte / 8);
      mine += width == 4 ? (byte % 8 ? word >> 32 : word & 0xFFFFFFFFull) : word;
    }
  add_up(mine * times, sum);
}

// Compares the written lines, and that the rest is unchanged: result[0] counts wrong words, result[1] is the first.
extern "C" __global__ void linkscope_check_lines(const u64* at, u64 words, u64 count, u64 stride, u64 width, u64 seed,
                                                 u64 first, u64 untouched, u64* result) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    const u64 part = asked_part(i * 8, count, stride, width);
    const u64 expected = (linkscope_pattern_word(seed, first / 8 + i) & part) | (untouched & ~part);
    if (at[i] != expected) {
      atomicAdd(&result[0], 1ull);
      atomicMin(&result[1], i);
    }
  }
}

// Each load needs the one before. Loads bypass the L1, which might still hold a line of an earlier launch.
static __device__ __forceinline__ void chase(u64* position, u64 steps) {
  u64 at = *position;
  for (u64 i = 0; i < steps; ++i) asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(at) : "l"(at));
  *position = at;
}

// One thread on any SM.
extern "C" __global__ void linkscope_chase(u64* position, u64 steps) { chase(position, steps); }

static __device__ __forceinline__ u64 timer_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// One thread on the SM of that number. The launch has a block of one thread for each SM, and no SM has room for two.
// All blocks stay until the selected one has started, so that no other block takes its SM. The selected block stores
// the number of this launch as proof. The others then leave, or after a time-out if it does not come.
extern "C" __global__ void linkscope_chase_on(u64* position, u64 steps, unsigned sm, u64* turns, u64 turn) {
  constexpr u64 patience_ns = 1000000;
  unsigned here;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(here));
  if (here == sm) {
    if (atomicCAS(turns, turn, turn + 1) == turn) chase(position, steps);
    return;
  }
  const u64 start = timer_ns();
  while (*static_cast<const volatile u64*>(turns) == turn && timer_ns() - start <= patience_ns) {
  }
}

extern "C" __global__ void linkscope_fill_chain(char* region, u64 lines) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < lines; i += step)
    *reinterpret_cast<u64*>(region + i * linkscope_chain_line) =
        reinterpret_cast<u64>(region) + linkscope_chain_next(i, lines) * linkscope_chain_line;
}
