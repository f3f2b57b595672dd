// Filling, poisoning and comparing host memory, on several threads.
#pragma once
#include <cstddef>
#include <span>

#include "base/units.hpp"
#include "program/row_order.hpp"

namespace linkscope {

inline constexpr std::byte poison{0xA5};
inline constexpr u64 poison_word = 0x0101010101010101ull * static_cast<u64>(poison);

/// The bit of a seed whose pattern consists of numbers.
inline constexpr u64 numbers_seed = u64{1} << 63;

/// What is wrong in compared memory, in words of 8 B if not stated otherwise.
struct Mismatch {
  u64 wrong = 0;
  u64 first = ~u64{0};  // index of the first wrong one
};

void fill_pattern(std::byte* start, u64 bytes, u64 seed);
void fill(std::byte* start, u64 bytes, std::byte with);

/// Compares `bytes` (a multiple of 8) at `start` with the pattern from byte `pattern_offset`.
[[nodiscard]] Mismatch check_pattern(const std::byte* start, u64 bytes, u64 seed, u64 pattern_offset);

/// Compares memory with as many bytes that it should have. The result is in bytes.
[[nodiscard]] Mismatch difference(std::span<const std::byte> found, std::span<const std::byte> expected);

/// Compares slices with the result of row copies.
[[nodiscard]] Mismatch check_rows(const std::byte* start, u64 bytes, const linkscope_row_copy&);

}  // namespace linkscope
