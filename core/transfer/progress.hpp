// What an asynchronous copy shares with its owner while it is under way.
#pragma once
#include <atomic>

#include "base/error.hpp"
#include "base/units.hpp"

namespace linkscope {

/// Thrown where a copy ends early because its owner cancelled it.
class Cancelled : public Error {
 public:
  Cancelled() : Error{ErrorKind::failed, "the copy was cancelled; its destination holds a part of the data"} {}
};

struct Progress {
  std::atomic<u64> done{0};  // bytes that need the source no more, or that are at a destination on the host
  std::atomic<bool> cancelled{false};
};

}  // namespace linkscope
