// Failures of the system's calls that a test plans. The linker leads the library's calls here (--wrap).
#pragma once
#include <cerrno>
#include <cstdint>
#include <map>
#include <string>

#include "base/units.hpp"

namespace linkscope {

/// Makes calls of one kind fail while it lives: `times` calls after the first `after`. "" makes none fail. Calls of open()
/// have a kind for each of their flags, as "open O_DIRECT"; those of io_uring have the kernel's names.
class FailingSystem {
 public:
  explicit FailingSystem(const std::string& kind, u64 after = 0, u64 times = ~u64{0}, int error = EIO);
  ~FailingSystem();
  FailingSystem(const FailingSystem&) = delete;
  FailingSystem& operator=(const FailingSystem&) = delete;
};

/// The calls of each kind since the latest plan began.
[[nodiscard]] std::map<std::string, u64> system_calls();
/// Counts a call. True if it must fail: then errno has the error.
[[nodiscard]] bool system_call_fails(const std::string& kind);
/// Mappings that mmap made and munmap has not ended.
[[nodiscard]] std::int64_t live_mappings();

}  // namespace linkscope
