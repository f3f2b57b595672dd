// The embedded device code, one entry a source file and architecture. The definitions are written at build time.
#pragma once
#include <span>

namespace linkscope {

struct DeviceCode {
  const char* module;  // the .cu file's name without its ending
  int arch;            // 90: sm_90
  bool ptx;            // to be compiled by the driver, for GPUs newer than the build's compiler
  const unsigned char *begin, *end;
};

[[nodiscard]] std::span<const DeviceCode> device_codes();
[[nodiscard]] const char* device_code_compiler();
[[nodiscard]] const char* device_code_hash();

}  // namespace linkscope
