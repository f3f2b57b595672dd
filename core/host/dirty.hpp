// Host memory that a core's cache holds modified: the next reader gets it from that cache and not from memory.
#pragma once
#include <cstddef>
#include <string>

#include "base/units.hpp"

namespace linkscope {

/// Rewrites every line of [start, start + bytes) by the calling thread.
void write_again(std::byte* start, u64 bytes);

/// Why no thread of the NUMA node (dense number) runs on another core than the caller; "" if one can.
[[nodiscard]] std::string why_no_other_core(u32 node);

/// The same by a thread on another core of the node; returns when it is done. Throws Error{failed} without such a core.
void dirty_in_another_core(std::byte* start, u64 bytes, u32 node);

}  // namespace linkscope
