#include "gpu/context.hpp"

namespace linkscope {

CurrentContext::CurrentContext(const Driver& driver, CUcontext context) : driver_{driver} {
  LINKSCOPE_CU(driver_, cuCtxGetCurrent, &callers_);
  if (callers_ == context) return;
  LINKSCOPE_CU(driver_, cuCtxSetCurrent, context);
  changed_ = true;
}

CurrentContext::~CurrentContext() {
  if (changed_) driver_.cuCtxSetCurrent(callers_);
}

NoContextAtEnd::~NoContextAtEnd() {
  if (driver_.usable()) driver_.cuCtxSetCurrent(nullptr);
}

}  // namespace linkscope
