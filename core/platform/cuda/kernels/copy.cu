// Copies by a GPU's threads: 16 bytes per load, four loads in flight per thread, neighbouring threads at neighbouring
// bytes. Both ends are aligned to 16 bytes; one thread copies a last 8 bytes.
#include "base/bulk_copy.hpp"

typedef unsigned long long u64;

static __device__ __forceinline__ uint4 load(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
  return v;
}

static __device__ __forceinline__ void store(uint4* at, const uint4& v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

static __device__ __forceinline__ void copy_tail(char* to, const char* from, u64 bytes) {
  if (bytes % 16 && blockIdx.x == 0 && threadIdx.x == 0)
    *reinterpret_cast<u64*>(to + bytes - 8) = *reinterpret_cast<const u64*>(from + bytes - 8);
}

extern "C" __global__ void __launch_bounds__(1024) linkscope_copy(char* to, const char* from, u64 bytes) {
  constexpr unsigned in_flight = 4;
  const u64 vectors = bytes / 16, tile = u64{blockDim.x} * in_flight;
  const uint4* source = reinterpret_cast<const uint4*>(from);
  uint4* target = reinterpret_cast<uint4*>(to);
  for (u64 first = blockIdx.x * tile; first < vectors; first += gridDim.x * tile) {
    const u64 mine = first + threadIdx.x;
    uint4 held[in_flight];
    if (first + tile <= vectors) {
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) held[k] = load(source + mine + k * blockDim.x);
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) store(target + mine + k * blockDim.x, held[k]);
    } else {
      for (u64 i = mine; i < vectors; i += blockDim.x) store(target + i, load(source + i));
    }
  }
  copy_tail(to, from, bytes);
}

// Rows of one length, gathered and scattered: a thread moves a piece of 16 bytes, or of 8 if rows or pitches are no
// multiples of 16. Neighbouring threads move neighbouring pieces of a row, then of the next.
template <class Piece>
static __device__ __forceinline__ void copy_rows(char* to, const char* from, u64 row, u64 rows, u64 to_pitch,
                                                 u64 from_pitch, u64 in_plane, u64 to_plane, u64 from_plane,
                                                 Piece piece) {
  constexpr unsigned in_flight = 4;
  const unsigned in_row = static_cast<unsigned>(row / piece.bytes), height = static_cast<unsigned>(in_plane);
  const u64 pieces = u64{in_row} * rows, step = u64{gridDim.x} * blockDim.x;
  const auto offset = [&](u64 i, u64 pitch, u64 plane) {
    const unsigned at = static_cast<unsigned>(i), line = at / in_row;
    return line / height * plane + line % height * pitch + u64{at % in_row} * piece.bytes;
  };
  u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (in_flight - 1) * step < pieces; i += in_flight * step) {
    decltype(piece.get(from)) held[in_flight];
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) held[k] = piece.get(from + offset(i + k * step, from_pitch, from_plane));
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) piece.put(to + offset(i + k * step, to_pitch, to_plane), held[k]);
  }
  for (; i < pieces; i += step)
    piece.put(to + offset(i, to_pitch, to_plane), piece.get(from + offset(i, from_pitch, from_plane)));
}

struct Vector {
  static constexpr unsigned bytes = 16;
  static __device__ __forceinline__ uint4 get(const char* at) { return load(reinterpret_cast<const uint4*>(at)); }
  static __device__ __forceinline__ void put(char* at, const uint4& v) { store(reinterpret_cast<uint4*>(at), v); }
};

struct Word {
  static constexpr unsigned bytes = 8;
  static __device__ __forceinline__ u64 get(const char* at) {
    u64 v;
    asm volatile("ld.global.cs.u64 %0, [%1];" : "=l"(v) : "l"(at));
    return v;
  }
  static __device__ __forceinline__ void put(char* at, const u64& v) {
    asm volatile("st.global.cs.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
  }
};

extern "C" __global__ void __launch_bounds__(1024)
    linkscope_copy_rows(char* to, const char* from, u64 row, u64 rows, u64 to_pitch, u64 from_pitch, u64 in_plane,
                        u64 to_plane, u64 from_plane) {
  if ((row | to_pitch | from_pitch | to_plane | from_plane | reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from)) %
          16 ==
      0)
    copy_rows(to, from, row, rows, to_pitch, from_pitch, in_plane, to_plane, from_plane, Vector{});
  else copy_rows(to, from, row, rows, to_pitch, from_pitch, in_plane, to_plane, from_plane, Word{});
}

// Two concurrent copies of one size: even warps do the first, odd warps the second. Four accesses in flight per thread,
// or one if there are enough threads.
extern "C" __global__ void __launch_bounds__(1024)
    linkscope_exchange(char* to, const char* from, char* back_to, const char* back_from, u64 bytes) {
  constexpr unsigned in_flight = 4, warp = 32;
  const bool back = threadIdx.x / warp % 2;
  const u64 lanes = blockDim.x / 2, vectors = bytes / 16, tile = lanes * in_flight;
  const uint4* source = reinterpret_cast<const uint4*>(back ? back_from : from);
  uint4* target = reinterpret_cast<uint4*>(back ? back_to : to);
  const u64 lane = threadIdx.x / (2 * warp) * warp + threadIdx.x % warp;
  if (gridDim.x * lanes >= vectors) {
    const u64 i = blockIdx.x * lanes + lane;
    if (i < vectors) store(target + i, load(source + i));
  } else
    for (u64 first = blockIdx.x * tile; first < vectors; first += gridDim.x * tile) {
      if (first + tile <= vectors) {
        uint4 held[in_flight];
#pragma unroll
        for (unsigned k = 0; k < in_flight; ++k) held[k] = load(source + first + lane + k * lanes);
#pragma unroll
        for (unsigned k = 0; k < in_flight; ++k) store(target + first + lane + k * lanes, held[k]);
      } else {
        for (u64 i = first + lane; i < vectors; i += lanes) store(target + i, load(source + i));
      }
    }
  copy_tail(to, from, bytes);
  copy_tail(back_to, back_from, bytes);
}

// A copy by the tensor memory accelerator: one thread per block sends every gridDim.x-th piece. Compute capability 9.0 and
// later; empty below, and never launched there.
extern "C" __global__ void linkscope_copy_tma(char* to, const char* from, u64 bytes) {
#if __CUDA_ARCH__ >= 900
  __shared__ BulkBuffer buffer;
  if (threadIdx.x == 0) {
    BulkCopies copies{&buffer, 0};
    copies.start();
    copies.copy(reinterpret_cast<u64>(to), reinterpret_cast<u64>(from), bytes / 16 * 16, blockIdx.x, gridDim.x);
  }
  copy_tail(to, from, bytes);
#endif
}
