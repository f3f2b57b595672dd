// Calls of libraries that are found at run time: one table by name.
#pragma once
#include <memory>
#include <string>

#include "platform/cuda/step_runner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Why a library call cannot be made here; "" if it can.
[[nodiscard]] std::string why_no_library_call(const Program&, const Actor&, const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> library_runner(const Opaque&);

}  // namespace linkscope
