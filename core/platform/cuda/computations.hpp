// Computations by device code of our own, of one or several launches: one table by name.
#pragma once
#include <memory>
#include <string>

#include "platform/cuda/step_runner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Whether the table has this computation.
[[nodiscard]] bool is_computation(const std::string& name);
/// Why its lengths or its arrays do not fit; "" if they do.
[[nodiscard]] std::string why_no_computation(const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> computation_runner(const Opaque&);

}  // namespace linkscope
