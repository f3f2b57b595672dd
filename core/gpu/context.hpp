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

}  // namespace linkscope
