// Operations of neural networks by cuDNN: cudnn_convolution, cudnn_attention and cudnn_softmax (gpu/cudnn.hpp).
#pragma once
#include <memory>
#include <string>

#include "platform/cuda/step_runner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Why the operation cannot be made here; "" if it can.
[[nodiscard]] std::string why_no_neural(const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> neural_runner(const Opaque&);

}  // namespace linkscope
