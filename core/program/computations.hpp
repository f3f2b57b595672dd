// How computations of our own divide their work, which programs and platforms must agree on.
#pragma once
#include <algorithm>

#include "base/units.hpp"

namespace linkscope {

/// Scans and sorts work on at most this many chunks of consecutive elements.
inline constexpr u64 most_chunks = 4096;
/// Elements of a chunk, a multiple of 128.
[[nodiscard]] constexpr u64 chunk_length(u64 elements) {
  return std::max<u64>(1, (elements + most_chunks * 128 - 1) / (most_chunks * 128)) * 128;
}
[[nodiscard]] constexpr u64 chunk_count(u64 elements) {
  return (elements + chunk_length(elements) - 1) / chunk_length(elements);
}
/// Memory for the sums of chunks; for a sort's counts of 16 digits; for all that a sort needs beside its arrays.
inline constexpr u64 scan_scratch_bytes = most_chunks * sizeof(u64);
inline constexpr u64 sort_counts_bytes = 16 * most_chunks * sizeof(u32);
inline constexpr u64 sort_scratch_bytes = 2 * sort_counts_bytes + scan_scratch_bytes;

}  // namespace linkscope
