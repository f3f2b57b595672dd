// Sum, scan and sort by agents of CUB. A block waits for earlier tiles only, whose blocks run or have run, so its waiting
// ends without a time-out.
#define CCCL_DISABLE_BF16_SUPPORT
#define CCCL_DISABLE_FP16_SUPPORT
#define CCCL_DISABLE_NVFP4_SUPPORT
#define CCCL_DISABLE_NVFP6_SUPPORT
#define CCCL_DISABLE_NVFP8_SUPPORT
#define CCCL_DISABLE_PDL  // it needs headers of the CUDA runtime
#include <cub/agent/agent_radix_sort_histogram.cuh>
#include <cub/agent/agent_radix_sort_onesweep.cuh>
#include <cub/agent/agent_reduce.cuh>
#include <cub/agent/agent_scan.cuh>

#include "program/computation_tiles.hpp"

using namespace linkscope;
using u32 = unsigned int;
using u64 = unsigned long long;

namespace {

template <u32 threads, u32 elements>
using Tile = cub::detail::NoScaling<int(threads), int(elements), u64>;

using Sum = cub::detail::reduce::AgentReduce<
    cub::detail::agent_reduce_policy<0, 0, u64, 4, cub::BLOCK_REDUCE_WARP_REDUCTIONS, cub::LOAD_DEFAULT,
                                     Tile<sum_threads, sum_elements>>,
    const u32*, u32, cuda::std::plus<>, u64>;

using Scan = cub::detail::scan::AgentScan<
    cub::detail::agent_scan_policy<0, 0, void, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
                                   cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS,
                                   Tile<scan_threads, scan_elements>,
                                   cub::detail::fixed_delay_constructor_t<648, 1245>>,
    const u32*, u32*, cuda::std::plus<>, u32, u32, u32, false, false>;

constexpr int digit_bits = 8;
static_assert(1 << digit_bits == sort_digits);
using Counts = cub::detail::radix_sort::AgentRadixSortHistogram<
    cub::detail::agent_radix_sort_histogram_policy<count_threads, count_elements, 1, void, digit_bits>, false, u32,
    u32>;
using Starts = cub::BlockScan<u32, sort_digits>;
using SortPass = cub::detail::radix_sort::AgentRadixSortOnesweep<
    cub::detail::agent_radix_sort_onesweep_policy<0, 0, void, 1, cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY,
                                                  cub::BLOCK_SCAN_RAKING_MEMOIZE, cub::RADIX_SORT_STORE_DIRECT,
                                                  digit_bits, Tile<sort_threads, sort_elements>>,
    false, u32, u32, u32, int>;

__device__ __forceinline__ cub::ScanTileState<u32> state_at(uint2* tiles) {
  cub::ScanTileState<u32> state;
  state.d_tile_descriptors = tiles;
  return state;
}

}  // namespace

// Adds the elements of `in` to `sum`.
extern "C" __global__ __launch_bounds__(sum_threads) void linkscope_sum(const u32* in, u32 count, u64* sum) {
  __shared__ typename Sum::TempStorage shared;
  cub::GridEvenShare<u32> share;
  share.DispatchInit(count, int(gridDim.x), int(sum_threads * sum_elements));
  if (blockIdx.x >= u32(share.grid_size)) return;
  const u64 own = Sum(shared, in, {}).ConsumeTiles(share);
  if (threadIdx.x == 0) atomicAdd(sum, own);
}

// Marks all tiles of a scan as not yet done.
extern "C" __global__ __launch_bounds__(scan_threads) void linkscope_scan_start(uint2* tiles, u32 count) {
  static_assert(scan_padding == cub::ScanTileState<u32>::TILE_STATUS_PADDING);
  state_at(tiles).InitializeStatus(int(count));
}

// Element i of `out` is the sum of the elements before it, modulo 2^32. A block for each tile.
extern "C" __global__ __launch_bounds__(scan_threads) void linkscope_scan(const u32* in, u32* out, u32 count,
                                                                          uint2* tiles) {
  __shared__ typename Scan::TempStorage shared;
  auto state = state_at(tiles);
  Scan(shared, in, out, {}, 0).ConsumeRange(count, state, 0);
}

// counts[pass * 256 + d] rises by how many keys have the digit d in this pass.
extern "C" __global__ __launch_bounds__(count_threads) void linkscope_digit_counts(const u32* keys, u32 count,
                                                                                   u32* counts) {
  __shared__ typename Counts::TempStorage shared;
  Counts(shared, counts, keys, count, 0, int(sort_passes) * digit_bits).Process();
}

// Replaces the counts of each pass by their sums before. A block for each pass.
extern "C" __global__ __launch_bounds__(sort_digits) void linkscope_digit_starts(u32* counts) {
  __shared__ typename Starts::TempStorage shared;
  u32& own = counts[blockIdx.x * sort_digits + threadIdx.x];
  u32 start;
  Starts(shared).ExclusiveSum(own, start);
  own = start;
}

// Moves every key with its value to where `starts` has its digit. Equal digits keep their order. A block for each tile,
// which takes its number from `next`; `before` has 256 words for each tile. Both are 0 at the start.
extern "C" __global__ __launch_bounds__(sort_threads) void linkscope_sort_pass(const u32* keys, const u32* values,
                                                                               int count, u32 pass, const u32* starts,
                                                                               int* next, int* before, u32* keys_to,
                                                                               u32* values_to) {
  __shared__ typename SortPass::TempStorage shared;
  SortPass(shared, before, next, nullptr, starts, keys_to, keys, values_to, values, count, int(pass) * digit_bits,
           digit_bits)
      .Process();
}
