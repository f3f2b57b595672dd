#include "gpu/pinned_range.hpp"

#include "base/error.hpp"

namespace linkscope {

PinnedRange::PinnedRange(const Driver& driver, MappedRange& range) : driver_{driver}, range_{range} {
  if (!driver.cuMemHostRegister || !driver.cuMemHostUnregister)
    throw Error{ErrorKind::unsupported, "this driver has no cuMemHostRegister"};
  try {
    LINKSCOPE_CU(driver, cuMemHostRegister, range.pages(), range.bytes(), CU_MEMHOSTREGISTER_READ_ONLY);
  } catch (const Error& error) {
    throw Error{ErrorKind::unsupported, error.what()};
  }
}

PinnedRange::~PinnedRange() {
  if (!has_ended_ && driver_.cuMemHostUnregister(range_.pages()) != CUDA_SUCCESS) range_.leave();
}

void PinnedRange::end() {
  LINKSCOPE_CU(driver_, cuMemHostUnregister, range_.pages());
  has_ended_ = true;
}

}  // namespace linkscope
