// How reductions, scans and sorts by CUB divide their work. Device code and the programs that launch it must agree. The
// numbers are those of CUB for 32-bit elements on sm_90.
#pragma once

namespace linkscope {

inline constexpr unsigned sum_threads = 256, sum_elements = 16;  // elements of a thread in a tile
inline constexpr unsigned scan_threads = 128, scan_elements = 24;
inline constexpr unsigned count_threads = 128, count_elements = 16;
inline constexpr unsigned sort_threads = 384, sort_elements = 23;
/// A sort of 32-bit keys has four passes, one for each digit of eight bits.
inline constexpr unsigned sort_digits = 256, sort_passes = 4;
/// Tiles before the first one, which a look-back meets.
inline constexpr unsigned scan_padding = 32;

}  // namespace linkscope
