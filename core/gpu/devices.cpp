#include "gpu/devices.hpp"

#include "base/error.hpp"

namespace linkscope {

Devices::Devices(const Driver& driver, CodeSet code)
    : driver_{driver}, code_{code}, facts_{list_devices(driver)}, opened_(facts_.size()) {}

Device& Devices::at(u32 index) {
  auto& device = opened_.at(index);
  if (device) return *device;
  const auto& facts = facts_[index];
  try {
    device = std::make_unique<Device>(driver_, facts, code_);
  } catch (const Error& error) {
    if (facts.attribute("COMPUTE_MODE", CU_COMPUTEMODE_DEFAULT) != CU_COMPUTEMODE_EXCLUSIVE_PROCESS) throw;
    throw Error{ErrorKind::failed, "gpu:" + std::to_string(index) +
                                       " is in compute mode 'exclusive process' and another process holds it (" +
                                       error.what() + ")"};
  }
  return *device;
}

Device* Devices::any() {
  for (u32 index = 0; index < facts_.size(); ++index) {
    const int mode = facts_[index].attribute("COMPUTE_MODE", CU_COMPUTEMODE_DEFAULT);
    if (mode == CU_COMPUTEMODE_DEFAULT) return &at(index);
    if (mode == CU_COMPUTEMODE_PROHIBITED) continue;
    try {
      return &at(index);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::failed) throw;  // failed: another process holds it
    }
  }
  return nullptr;
}

}  // namespace linkscope
