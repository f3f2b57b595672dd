// The embedded device code of this room, one entry per source file and architecture. It is written at build time.
#pragma once
#include <span>

#include "gpu/code.hpp"

namespace linkscope {

[[nodiscard]] std::span<const DeviceCode> putget_device_codes();
[[nodiscard]] const char* putget_device_code_compiler();
[[nodiscard]] const char* putget_device_code_hash();

/// What a GPU's functions are loaded from.
[[nodiscard]] inline CodeSet putget_code() { return {putget_device_codes(), putget_device_code_compiler()}; }

}  // namespace linkscope
