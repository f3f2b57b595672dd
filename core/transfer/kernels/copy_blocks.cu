// Scattered blocks between any two memories that the GPU can reach. A warp moves one block at a time, so that a few SMs
// keep enough bytes in flight for the latency of the link.
#include "transfer/block.hpp"
#include "transfer/copy_range.hpp"

typedef unsigned long long u64;

static constexpr unsigned lanes = 32;

extern "C" __global__ void __launch_bounds__(1024) linkscope_copy_blocks(const linkscope_block* table, u64 count) {
  const unsigned lane = threadIdx.x % lanes, warps_of_block = blockDim.x / lanes;
  const u64 warps = u64{gridDim.x} * warps_of_block;
  for (u64 i = u64{blockIdx.x} * warps_of_block + threadIdx.x / lanes; i < count; i += warps) {
    const linkscope_block block = table[i];
    char* to = reinterpret_cast<char*>(block.dst);
    const char* from = reinterpret_cast<const char*>(block.src);
    const u64 skew = block.dst ^ block.src;
    if (skew % 16 == 0) copy_range<uint4>(to, from, block.bytes, lane, lanes);
    else if (skew % 4 == 0) copy_range<unsigned>(to, from, block.bytes, lane, lanes);
    else copy_range<char>(to, from, block.bytes, lane, lanes);
  }
}
