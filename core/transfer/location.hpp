// The kind of memory that an address names, as the driver knows it.
#pragma once
#include <string>

#include "base/units.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

enum class MemoryType : u8 { pageable, pinned, device, managed };

struct Location {
  MemoryType memory = MemoryType::pageable;
  CUdevice device = -1;  // kind device: the GPU that has it
  [[nodiscard]] bool on_host() const { return memory == MemoryType::pageable || memory == MemoryType::pinned; }
  bool operator==(const Location&) const = default;
};

[[nodiscard]] inline void* to_pointer(u64 address) { return reinterpret_cast<void*>(address); }

/// The kind of memory at an address. All memory that the driver does not know is pageable.
[[nodiscard]] Location locate(const Driver&, const void* address);

/// The same for a range. A range whose ends differ lies in several allocations, and only the driver knows what is
/// between them: it counts as managed.
[[nodiscard]] Location locate_all(const Driver&, const void* start, u64 bytes);

/// "pageable memory", "memory of gpu 1" (the driver's number).
[[nodiscard]] std::string to_string(const Location&);

/// The bytes between an address and the end of its allocation; 0 if the driver does not know it.
[[nodiscard]] u64 bytes_from(const Driver&, const void* address);

}  // namespace linkscope
