// A blocked LU with look-ahead on one GPU, by cuBLAS and device code of our own.
#pragma once
#include <memory>
#include <string>

#include "platform/cuda/step_runner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Why the call "lu" cannot be made: its lengths are the order of the matrix and that of a block; it reads the matrix and
/// writes the factors. "" if it can.
[[nodiscard]] std::string why_no_lu(const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> lu_runner(const Opaque&);

}  // namespace linkscope
