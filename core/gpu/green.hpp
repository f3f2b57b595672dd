// Green contexts: parts of a GPU's SMs. Kernels of a stream of a green context run on its SMs only; memory and code are those
// of the primary context.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "gpu/device.hpp"
#include "gpu/driver.hpp"
#include "gpu/stream.hpp"

namespace linkscope {

/// Why this driver has no green contexts; "" if it has. Drivers of CUDA 12.5 and later have them.
[[nodiscard]] std::string why_no_green_context(const Driver&);

/// Equal parts of a GPU's SMs. SMs that no part gets stay idle: a part is a multiple of 8 SMs (of 2 on small GPUs).
class GreenContexts {
 public:
  /// Throws Error{unsupported} if the GPU has too few SMs for so many parts.
  GreenContexts(const Driver&, Device&, u32 parts);
  ~GreenContexts();
  GreenContexts(const GreenContexts&) = delete;
  GreenContexts& operator=(const GreenContexts&) = delete;

  [[nodiscard]] u32 sms_of_part() const { return sms_; }
  [[nodiscard]] Stream& stream(u32 part) { return *streams_[part]; }

 private:
  const Driver& driver_;
  Device& device_;
  u32 sms_ = 0;
  std::vector<CUgreenCtx> contexts_;
  std::vector<std::unique_ptr<Stream>> streams_;
  void end();
};

}  // namespace linkscope
