// Memory of this process that a caller names by its address: whether it can be used, and how its pages are backed.
#pragma once
#include "base/units.hpp"

namespace linkscope {

/// False if the kernel refuses to read the first or the last byte. True where the kernel does not answer.
[[nodiscard]] bool can_read(const void* start, u64 bytes);
/// The same for writing. Both bytes keep their values.
[[nodiscard]] bool can_write(void* start, u64 bytes);

/// True if the kernel says that all pages of the range are mapped. It does not say whether they may be read or written.
[[nodiscard]] bool is_mapped(const void* start, u64 bytes);

/// True if none of a few sampled pages of the range is backed yet, so that the first write takes a page fault.
[[nodiscard]] bool is_untouched(const void* start, u64 bytes);

/// Asks for huge pages where the range has room for whole ones. A fault on a huge page replaces 512 faults.
void request_huge_pages(void* start, u64 bytes);

/// The host's memory.
[[nodiscard]] u64 host_memory_bytes();

/// The number of CPUs that this process may use, at least 1.
[[nodiscard]] u32 usable_cpus();

}  // namespace linkscope
