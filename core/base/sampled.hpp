// Positions at which large results are compared with a reference. The fake libraries of the tests compute these too.
#pragma once
#include "base/pattern.hpp"
#include "base/units.hpp"

namespace linkscope {

inline constexpr u64 most_sampled = 256;

/// Position `i` of those below `size`: the first, the last, and then spread ones.
[[nodiscard]] inline u64 sampled_at(u64 i, u64 size) {
  return i == 0 ? 0 : i == 1 ? size - 1 : linkscope_pattern_word(0x73616D706C6564ull, i) % size;
}

}  // namespace linkscope
