#include "gpu/code.hpp"

#include "base/error.hpp"

namespace linkscope {

const DeviceCode& code_for(const DeviceFacts& facts, const CodeSet& set, const std::string& module) {
  const int major = facts.attribute("COMPUTE_CAPABILITY_MAJOR", 0),
            arch = major * 10 + facts.attribute("COMPUTE_CAPABILITY_MINOR", 0);
  const DeviceCode* best = nullptr;
  for (const auto& code : set.codes) {
    if (module != code.module) continue;
    // Machine code runs on its major version from its minor version; the driver compiles PTX for newer GPUs.
    const bool fits = code.ptx ? code.arch <= arch : code.arch / 10 == major && code.arch <= arch;
    if (fits && (!best || (best->ptx && !code.ptx) || (best->ptx == code.ptx && code.arch > best->arch))) best = &code;
  }
  if (!best)
    throw Error{ErrorKind::failed, facts.name + " has compute capability " + std::to_string(major) + "." +
                                       std::to_string(arch % 10) + ", for which this build (" + set.compiler +
                                       ") has no device code"};
  return *best;
}

}  // namespace linkscope
