// The cuda platform of all tests in this folder, with the fake driver (tests/fake_cuda).
#pragma once
#include <doctest.h>

#include "base/error.hpp"
#include "platform/cuda/cuda_platform.hpp"

namespace linkscope {

inline CudaPlatform& platform() {
  static const auto made = make_cuda();
  REQUIRE_MESSAGE(made->facts().present, made->facts().why_not);
  return *made;
}

}  // namespace linkscope
