// Operations of all ranks of a group (collectives), and the types of the numbers that they add.
#pragma once
#include "base/units.hpp"

namespace linkscope {

/// `broadcast` and `reduce` have rank 0 as their root. In `send_receive` each rank sends to the next one, and the last to
/// the first.
enum class CollectiveKind : u8 { all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, send_receive };
inline constexpr u32 collective_kinds = 7;

enum class NumberType : u8 { f32, f64, bf16, u32 };
inline constexpr u32 number_types = 4;
[[nodiscard]] constexpr u64 bytes_of(NumberType type) {
  return type == NumberType::f64 ? 8 : type == NumberType::bf16 ? 2 : 4;
}

}  // namespace linkscope
