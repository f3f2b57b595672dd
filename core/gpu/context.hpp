// The calling thread's context.
#pragma once
#include "gpu/driver.hpp"

namespace linkscope {

/// Makes a context current for the calling thread while it lives; then the caller's context is current again.
class CurrentContext {
 public:
  /// Throws if the context cannot become current.
  CurrentContext(const Driver&, CUcontext);
  ~CurrentContext();  // without reporting errors
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  CUcontext callers_ = nullptr;
  bool changed_ = false;
};

/// Leaves its thread without a context at its end. A primary context that is released stays current, unlike one that is
/// destroyed (cuDevicePrimaryCtxRelease), and other libraries then use it: UCX sets a flag of the current context.
class NoContextAtEnd {
 public:
  explicit NoContextAtEnd(const Driver& driver) : driver_{driver} {}
  ~NoContextAtEnd();  // without reporting errors
  NoContextAtEnd(const NoContextAtEnd&) = delete;
  NoContextAtEnd& operator=(const NoContextAtEnd&) = delete;

 private:
  const Driver& driver_;
};

}  // namespace linkscope
