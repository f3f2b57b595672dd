// The embedded device code, one entry per source file and architecture. Definitions are written at build time.
#pragma once
#include <span>

namespace linkscope {

struct DeviceCode {
  const char* module;  // name of the .cu file without its ending
  int arch;            // 90: sm_90
  bool ptx;            // compiled by the driver, for GPUs newer than the build's compiler
  const unsigned char *begin, *end;
};

[[nodiscard]] std::span<const DeviceCode> device_codes();
[[nodiscard]] const char* device_code_compiler();
[[nodiscard]] const char* device_code_hash();

}  // namespace linkscope
