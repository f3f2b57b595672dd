// Writes cache lines back to memory and drops them from every CPU cache, by the instruction of this processor that
// reaches the line (flush_*.cpp, one file an instruction set).
#pragma once
#include "base/units.hpp"

namespace linkscope {

/// Flushes every line of [start, start + bytes) and waits until that is done.
void flush_cpu_caches(const void* start, u64 bytes);

/// The instruction used: "clflushopt", "clflush", "dc civac", "dcbf", for the record.
[[nodiscard]] const char* cache_flush_instruction();

}  // namespace linkscope
