#pragma once
#include "base/units.hpp"

namespace linkscope {

/// Offsets, sizes and addresses of reads and writes that may bypass the page cache are multiples of this.
constexpr u64 file_granule = 4096;

}  // namespace linkscope
