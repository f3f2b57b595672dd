// The one exception type of the core. It is thrown with exact facts where something fails and caught in one place,
// the worker's request loop (or the C interface), which turns it into an answer.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace linkscope {

enum class ErrorKind {
  usage,        // the request makes no sense: the caller's mistake
  failed,       // a call failed; this process can go on
  lost,         // the process or a device is no longer usable (sticky CUDA error, GPU fell off the bus)
  timeout,      // something that waits passed its deadline
  memory,       // an allocation was refused
  unsupported,  // this machine cannot do what was asked; the message says why
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error{message}, kind_{kind} {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

constexpr const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::failed:
      return "failed";
    case ErrorKind::lost:
      return "lost";
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::memory:
      return "memory";
    case ErrorKind::unsupported:
      return "unsupported";
  }
  return "failed";
}

}  // namespace linkscope
