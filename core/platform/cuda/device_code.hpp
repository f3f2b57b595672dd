// The embedded device code, one entry per source file and architecture. Definitions are written at build time.
#pragma once
#include <span>

#include "gpu/code.hpp"

namespace linkscope {

[[nodiscard]] std::span<const DeviceCode> device_codes();
[[nodiscard]] const char* device_code_compiler();
[[nodiscard]] const char* device_code_hash();

/// What a GPU's functions are loaded from.
[[nodiscard]] inline CodeSet embedded_code() { return {device_codes(), device_code_compiler()}; }

}  // namespace linkscope
