// The memory of a program's regions: allocated by the process that has them, opened by others, placed, checked and filled.
#pragma once
#include "gpu/devices.hpp"
#include "platform/cuda/buffers.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Throws Error{memory} if there is no more, Error{unsupported} if it cannot be shared, Error{failed} if pages are not
/// where they should be.
void make_buffers(CudaSession&, Buffers&, Devices&);

}  // namespace linkscope
