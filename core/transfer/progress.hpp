// What a copy shares with its owner while it is under way.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "base/units.hpp"

namespace linkscope {

/// Thrown where a copy ends early because its owner cancelled it.
class Cancelled : public Error {
 public:
  explicit Cancelled(const std::string& text = "the copy was cancelled; its destination holds a part of the data")
      : Error{ErrorKind::failed, text} {}
};

struct Progress {
  std::atomic<u64> done{0};  // bytes that need the source no more, or that are at a destination on the host
  std::atomic<bool> cancelled{false};
  /// Called by the thread that made this object, now and then, with the bytes so far. It must not throw.
  std::function<void(u64)> report;
  std::thread::id owner = std::this_thread::get_id();

  void add(u64 bytes) {
    const u64 now = done += bytes;
    if (report && std::this_thread::get_id() == owner) report(now);
  }
};

}  // namespace linkscope
