// Calls of libraries that are found at run time: one table by name.
#pragma once
#include <memory>
#include <string>

#include "gpu/facts.hpp"
#include "platform/cuda/step_runner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Why a library call cannot be made on the actor's GPU; "" if it can.
[[nodiscard]] std::string why_no_library_call(const Program&, const Actor&, const std::vector<DeviceFacts>&,
                                              const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> library_runner(const Opaque&);

}  // namespace linkscope
