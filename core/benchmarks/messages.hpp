// Messages as a part of other operations.
#pragma once
#include <optional>

#include "benchmarks/copies.hpp"

namespace linkscope {

[[nodiscard]] Param channel_param();
/// Round trips from the case's source to its destination by its parameter `channel`. CPUs as in Message.
[[nodiscard]] Program message_program(const Case&, u64 bytes, std::optional<u32> cpu, std::optional<u32> other_cpu);

}  // namespace linkscope
