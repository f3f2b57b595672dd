// The parameter `chunk` of operations that move data in pieces through slots.
#pragma once
#include <array>
#include <string_view>
#include <utility>

#include "benchmarks/case.hpp"

namespace linkscope {

/// Values of the parameter and their bytes; `whole`: the size of the operation.
inline constexpr std::array<std::pair<std::string_view, u64>, 10> chunks{{{"1MiB", u64{1} << 20},
                                                                          {"whole", 0},
                                                                          {"64KiB", u64{64} << 10},
                                                                          {"128KiB", u64{128} << 10},
                                                                          {"256KiB", u64{256} << 10},
                                                                          {"512KiB", u64{512} << 10},
                                                                          {"2MiB", u64{2} << 20},
                                                                          {"4MiB", u64{4} << 20},
                                                                          {"8MiB", u64{8} << 20},
                                                                          {"16MiB", u64{16} << 20}}};

/// The bytes of a case's chunk, at most those of the case. Throws Error{usage} for a size that is no multiple of it.
u64 chunk_bytes(const Case&);

/// The parameter, with what it says.
[[nodiscard]] Param chunk_param(std::string_view says);

/// The time that an actor waits for a chunk: `least`, and the chunk at the slowest rate that still counts.
Seconds chunk_timeout(u64 chunk, Seconds least = Seconds{2.0});

}  // namespace linkscope
