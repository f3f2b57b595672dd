// Products of matrices: by cuBLAS or cuBLASLt (cublas_gemm), and by our own kernel on tensor cores (tensor_gemm).
#pragma once
#include <memory>
#include <string>

#include "platform/cuda/step_runner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Why a product cannot be made here; "" if it can.
[[nodiscard]] std::string why_no_gemm(const Opaque&);
[[nodiscard]] std::string why_no_tensor_gemm(const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> gemm_runner(const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> tensor_gemm_runner(const Opaque&);

}  // namespace linkscope
