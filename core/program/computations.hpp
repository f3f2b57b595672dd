// Memory that computations of our own need beside their arrays, which programs and platforms must agree on.
#pragma once
#include "base/units.hpp"
#include "program/computation_tiles.hpp"

namespace linkscope {

/// Tiles of a scan, and of a sort.
[[nodiscard]] constexpr u64 scan_tiles(u64 elements) {
  constexpr u64 tile = u64{scan_threads} * scan_elements;
  return (elements + tile - 1) / tile;
}
[[nodiscard]] constexpr u64 sort_tiles(u64 elements) {
  constexpr u64 tile = u64{sort_threads} * sort_elements;
  return (elements + tile - 1) / tile;
}
/// Bytes of the states of a scan's tiles.
[[nodiscard]] constexpr u64 scan_scratch_bytes(u64 elements) {
  return (scan_padding + scan_tiles(elements)) * sizeof(u64);
}
/// Bytes of a sort's counts of digits, behind them those of its counters of tiles, and then of the counts of tiles.
inline constexpr u64 sort_counts_bytes = u64{sort_passes} * sort_digits * sizeof(u32);
inline constexpr u64 sort_counters_bytes = u64{sort_passes} * sizeof(u32);
[[nodiscard]] constexpr u64 sort_scratch_bytes(u64 elements) {
  return sort_counts_bytes + sort_counters_bytes + sort_tiles(elements) * sort_digits * sizeof(u32);
}

}  // namespace linkscope
