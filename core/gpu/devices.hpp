// The GPUs of this machine, each opened at first use.
#pragma once
#include <memory>
#include <vector>

#include "gpu/device.hpp"

namespace linkscope {

class Devices {
 public:
  Devices(const Driver&, CodeSet);

  /// In PCI bus order, as are the indices below.
  [[nodiscard]] const std::vector<DeviceFacts>& facts() const { return facts_; }
  /// Throws Error{failed} if another process holds the GPU for itself.
  [[nodiscard]] Device& at(u32 index);
  /// Ends its context, unless somebody else in this process uses it too.
  void close(u32 index) { opened_.at(index).reset(); }
  /// The first GPU that admits this process; null if none does.
  [[nodiscard]] Device* any();

 private:
  const Driver& driver_;
  CodeSet code_;
  std::vector<DeviceFacts> facts_;
  std::vector<std::unique_ptr<Device>> opened_;
};

}  // namespace linkscope
