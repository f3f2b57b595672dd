// Products of matrices on tensor cores, as plainly as they reach a useful rate: a floor for libraries. C (m x n, f32,
// column by column) = A^T B, where A (k x m) and B (k x n) have columns without gaps. From compute capability 8.0.
#include "program/tensor_tiles.hpp"

using u32 = unsigned int;
using u64 = unsigned long long;

enum class Number { bf16, f16, tf32 };

// Copies 16 B to shared memory; a later wait_for_slabs says that they are there.
__device__ __forceinline__ void linkscope_fetch(u32 to, const char* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Four 8 x 8 tiles of 16-bit words, or 8 x 4 of 32-bit ones; lane i gives the address of row i % 8 of tile i / 8.
__device__ __forceinline__ void linkscope_load_tiles(u32* tiles, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(at)
               : "memory");
}

// 32 B of each row of A and each column of B: 16 elements of 16 bits, or 8 of tf32.
template <Number number>
__device__ __forceinline__ void linkscope_multiply(float* sum, const u32* a, const u32* b) {
  if constexpr (number == Number::bf16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else if constexpr (number == Number::f16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A slab is 64 B of the 128 columns of A, then those of B. Its 16 B vectors are permuted, so that eight rows of a tile lie
// in different banks.
constexpr u32 slab_bytes = 64, vectors = slab_bytes / 16, half_bytes = tensor_tile * slab_bytes;
__device__ __forceinline__ u32 linkscope_in_slab(u32 column, u32 vector) {
  return column * slab_bytes + (vector ^ (column / 2 % vectors)) * 16;
}

__device__ __forceinline__ void linkscope_fetch_slab(u32 to, const char* a, const char* b, u64 pitch) {
  for (u32 i = threadIdx.x; i < tensor_tile * vectors; i += tensor_threads) {
    const u32 column = i / vectors, vector = i % vectors;
    const u64 from = column * pitch + vector * 16;
    linkscope_fetch(to + linkscope_in_slab(column, vector), a + from);
    linkscope_fetch(to + half_bytes + linkscope_in_slab(column, vector), b + from);
  }
}

// A block computes a tile of 128 x 128, each of its 8 warps 64 x 32 of it. `pitch`: bytes of a column of A and B.
template <Number number>
__device__ __forceinline__ void linkscope_tile_of_product(const char* a, const char* b, float* c, u32 m, u32 n,
                                                          u64 pitch) {
  constexpr u32 stages = 3, across = 4, down = 4;  // tiles of a warp: `down` of 16 rows, `across` of 8 columns
  __shared__ alignas(128) char slabs[stages * 2 * half_bytes];
  const u32 shared = (u32)__cvta_generic_to_shared(slabs), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Blocks that run together share rows and columns: groups of 8 rows of tiles.
  const u32 tiles_down = m / tensor_tile, group = tiles_down % 8 ? 1 : 8, tiles_across = n / tensor_tile;
  const u32 in_groups = blockIdx.x / (group * tiles_across), in_group = blockIdx.x % (group * tiles_across);
  const u32 first_row = (in_groups * group + in_group % group) * tensor_tile,
            first_column = in_group / group * tensor_tile;
  a += first_row * pitch, b += first_column * pitch;
  const u32 row = warp % 2 * 64, column = warp / 2 * 32;
  float sums[down][across][4] = {};

  const u32 count = (u32)(pitch / slab_bytes);
  for (u32 i = 0; i < stages - 1; ++i) {
    if (i < count) linkscope_fetch_slab(shared + i * 2 * half_bytes, a + i * slab_bytes, b + i * slab_bytes, pitch);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (u32 i = 0; i < count; ++i) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();  // slab i is there for all, and nobody reads the place of slab i - 1 any more
    const u32 next = i + stages - 1;
    if (next < count)
      linkscope_fetch_slab(shared + next % stages * 2 * half_bytes, a + (u64)next * slab_bytes,
                           b + (u64)next * slab_bytes, pitch);
    asm volatile("cp.async.commit_group;" ::: "memory");
    const u32 slab_a = shared + i % stages * 2 * half_bytes, slab_b = slab_a + half_bytes;
#pragma unroll
    for (u32 vector = 0; vector < vectors; vector += 2) {
      u32 of_a[down][4], of_b[across / 2][4];
#pragma unroll
      for (u32 y = 0; y < down; ++y)
        linkscope_load_tiles(of_a[y], slab_a + linkscope_in_slab(row + y * 16 + lane % 16, vector + lane / 16));
#pragma unroll
      for (u32 x = 0; x < across / 2; ++x)
        linkscope_load_tiles(
            of_b[x], slab_b + linkscope_in_slab(column + x * 16 + lane / 16 * 8 + lane % 8, vector + lane / 8 % 2));
#pragma unroll
      for (u32 y = 0; y < down; ++y)
#pragma unroll
        for (u32 x = 0; x < across; ++x) linkscope_multiply<number>(sums[y][x], of_a[y], of_b[x / 2] + x % 2 * 2);
    }
  }
#pragma unroll
  for (u32 y = 0; y < down; ++y)
#pragma unroll
    for (u32 x = 0; x < across; ++x)
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        const u32 to_row = first_row + row + y * 16 + lane / 4 + i / 2 * 8;
        const u32 to_column = first_column + column + x * 8 + lane % 4 * 2 + i % 2;
        c[(u64)to_column * m + to_row] = sums[y][x][i];
      }
}

extern "C" __global__ void __launch_bounds__(tensor_threads)
    linkscope_product_bf16(const char* a, const char* b, float* c, u32 m, u32 n, u64 pitch) {
#if __CUDA_ARCH__ >= 800
  linkscope_tile_of_product<Number::bf16>(a, b, c, m, n, pitch);
#endif
}

extern "C" __global__ void __launch_bounds__(tensor_threads)
    linkscope_product_f16(const char* a, const char* b, float* c, u32 m, u32 n, u64 pitch) {
#if __CUDA_ARCH__ >= 800
  linkscope_tile_of_product<Number::f16>(a, b, c, m, n, pitch);
#endif
}

extern "C" __global__ void __launch_bounds__(tensor_threads)
    linkscope_product_tf32(const char* a, const char* b, float* c, u32 m, u32 n, u64 pitch) {
#if __CUDA_ARCH__ >= 800
  linkscope_tile_of_product<Number::tf32>(a, b, c, m, n, pitch);
#endif
}
