// Programs of messages between ranks.
#pragma once
#include "benchmarks/case.hpp"

namespace linkscope {

/// Round trips of a message: whole, or with way=double in chunks that go through several slots of each staged end.
[[nodiscard]] Program build_ping_pong(const Case&);
/// Messages in one direction, or in both.
[[nodiscard]] Program build_both(const Case&);
/// Messages of several pairs at once. A rank has one thread, because only one may call MPI.
[[nodiscard]] Program build_rates_of_pairs(const Case&);
/// Round trips of several pairs at once.
[[nodiscard]] Program build_trips_of_pairs(const Case&);

}  // namespace linkscope
