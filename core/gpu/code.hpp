// Device code that a program carries, and the code that a GPU runs.
#pragma once
#include <span>
#include <string>

#include "gpu/facts.hpp"

namespace linkscope {

struct DeviceCode {
  const char* module;  // name of the .cu file without its ending
  int arch;            // 90: sm_90
  bool ptx;            // compiled by the driver, for GPUs newer than the build's compiler
  const unsigned char *begin, *end;
};

/// All modules for all architectures that a compiler offers.
struct CodeSet {
  std::span<const DeviceCode> codes;
  const char* compiler = "";  // its name and version
};

/// The best code of a module for a GPU. Throws Error{failed} if the GPU runs none of it.
[[nodiscard]] const DeviceCode& code_for(const DeviceFacts&, const CodeSet&, const std::string& module);

}  // namespace linkscope
