// Scattered blocks between any two memories that the GPU can reach. A warp moves one block at a time, so that a few SMs
// keep enough bytes in flight for the latency of the link.
#include "transfer/block.hpp"
typedef unsigned long long u64;

static constexpr unsigned lanes = 32;

/// Moves words at neighbouring addresses by neighbouring lanes, with eight loads of each lane in flight.
template <class Word>
static __device__ __forceinline__ void copy_words(char* to, const char* from, u64 words, unsigned lane) {
  constexpr unsigned in_flight = 8;
  const Word* source = reinterpret_cast<const Word*>(from);
  Word* target = reinterpret_cast<Word*>(to);
  u64 i = lane;
  for (; i + (in_flight - 1) * lanes < words; i += in_flight * lanes) {
    Word held[in_flight];
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) held[k] = source[i + k * lanes];
#pragma unroll
    for (unsigned k = 0; k < in_flight; ++k) target[i + k * lanes] = held[k];
  }
  for (; i < words; i += lanes) target[i] = source[i];
}

/// Moves a block whose ends have the same offset within a word: bytes up to the first whole word, words, bytes.
template <class Word>
static __device__ __forceinline__ void copy_block(char* to, const char* from, u64 bytes, unsigned lane) {
  const u64 before = (sizeof(Word) - reinterpret_cast<u64>(to) % sizeof(Word)) % sizeof(Word);
  const u64 head = before < bytes ? before : bytes, words = (bytes - head) / sizeof(Word),
            done = head + words * sizeof(Word);
  copy_words<char>(to, from, head, lane);
  copy_words<Word>(to + head, from + head, words, lane);
  copy_words<char>(to + done, from + done, bytes - done, lane);
}

extern "C" __global__ void __launch_bounds__(1024) linkscope_copy_blocks(const linkscope_block* table, u64 count) {
  const unsigned lane = threadIdx.x % lanes, warps_of_block = blockDim.x / lanes;
  const u64 warps = u64{gridDim.x} * warps_of_block;
  for (u64 i = u64{blockIdx.x} * warps_of_block + threadIdx.x / lanes; i < count; i += warps) {
    const linkscope_block block = table[i];
    char* to = reinterpret_cast<char*>(block.dst);
    const char* from = reinterpret_cast<const char*>(block.src);
    const u64 skew = block.dst ^ block.src;
    if (skew % 16 == 0) copy_block<uint4>(to, from, block.bytes, lane);
    else if (skew % 4 == 0) copy_block<unsigned>(to, from, block.bytes, lane);
    else copy_block<char>(to, from, block.bytes, lane);
  }
}
