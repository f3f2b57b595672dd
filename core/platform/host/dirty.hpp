// Host memory that a core's cache holds modified: who touches it next gets it from there and not from memory.
#pragma once
#include <cstddef>
#include <string>

#include "base/units.hpp"

namespace linkscope {

/// Writes every line of [start, start + bytes) with what it holds, by the caller.
void write_again(std::byte* start, u64 bytes);

/// Why no thread of the NUMA node (dense number) runs on another core than the caller; "" where one can.
[[nodiscard]] std::string why_no_other_core(u32 node);

/// The same by a thread on another core of the node than that of the caller; waits until that is done. Throws Error{failed} where there is none.
void dirty_in_another_core(std::byte* start, u64 bytes, u32 node);

}  // namespace linkscope
