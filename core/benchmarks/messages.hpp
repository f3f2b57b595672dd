// Messages as a part of other operations.
#pragma once
#include <optional>

#include "benchmarks/copies.hpp"

namespace linkscope {

[[nodiscard]] Param channel_param();
/// Round trips from the case's source to its destination by its parameter `channel`. CPUs as in Message.
[[nodiscard]] Program message_program(const Case&, u64 bytes, std::optional<u32> cpu, std::optional<u32> other_cpu);
/// Round trips of host memory between two ranks by the case's engine. Actor 0 begins each round trip, actor 1 answers.
[[nodiscard]] Program rank_trips(const Case&, const Place& from, const Place& to, u64 bytes);

}  // namespace linkscope
