// What the library did in place of the way that was chosen, and why.
#pragma once
#include <atomic>
#include <mutex>
#include <string>

#include "base/units.hpp"

namespace linkscope {

class Fallbacks {
 public:
  void note(const std::string& why) {
    const std::lock_guard lock{mutex_};
    latest_ = why;
    ++count_;
  }
  /// "" if there was none.
  [[nodiscard]] std::string latest() const {
    const std::lock_guard lock{mutex_};
    return latest_;
  }
  [[nodiscard]] u64 count() const { return count_; }

 private:
  mutable std::mutex mutex_;
  std::string latest_;
  std::atomic<u64> count_{0};
};

}  // namespace linkscope
