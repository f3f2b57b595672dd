// Whether this process may read or write all pages of a range, without touching them.
#pragma once
#include <sys/types.h>

#include <optional>

#include "base/units.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

enum class Access : u8 { read, write };

/// One question to the kernel for each mapping, however many pages it has. Threads may share it.
class PageAccess {
 public:
  PageAccess();
  /// The offset of the first page of the range that the access would end the process for: it is not mapped, or protected.
  /// None if there is none, or if the kernel does not say: before Linux 6.11, in sandboxes, and in a child of fork(), which
  /// has other mappings than the process that asked first.
  [[nodiscard]] std::optional<u64> first_refused(const void* start, u64 bytes, Access) const;

 private:
  Descriptor maps_;
  pid_t owner_;
};

}  // namespace linkscope
