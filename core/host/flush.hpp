// Writes cache lines back to memory and drops them from every CPU cache, by the instruction of this processor that
// reaches the line (flush_*.cpp, one file an instruction set).
#pragma once
#include <string>

#include "base/units.hpp"

namespace linkscope {

/// Flushes every line of [start, start + bytes) and waits for the end.
void flush_cpu_caches(const void* start, u64 bytes);

/// "" or why this CPU cannot write lines back and keep them (clwb of x86-64, by CPUID).
[[nodiscard]] std::string why_no_write_back();

/// Writes every line of [start, start + bytes) back to memory and waits for the end; the cache may keep the lines. Throws
/// Error{unsupported} on a CPU that cannot.
void write_back_cpu_caches(const void* start, u64 bytes);

/// The instruction for the record: "clflushopt", "clflush", "dc civac", "dcbf".
[[nodiscard]] const char* cache_flush_instruction();

}  // namespace linkscope
