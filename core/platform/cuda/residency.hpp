// Kernels that wait for words must run at the same time as what sets the words.
#pragma once
#include <string>
#include <vector>

#include "gpu/facts.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Why the blocks of a program that wait for words could wait for ever: they need more hardware queues or more SMs than a
/// GPU has. "" if they could not. The program's GPUs exist.
[[nodiscard]] std::string why_not_resident(const Program&, const std::vector<DeviceFacts>& gpus);

}  // namespace linkscope
