// Where the bytes of a copy come from, through the copies of other actors.
#pragma once
#include "program/program.hpp"

namespace linkscope {

/// The pattern that a move delivers: its origin within its actor's loop, or, if that is a buffer which another actor fills,
/// the origin of that actor's move. Iterations of both count alike, because the actors wait for each other.
[[nodiscard]] const Span& pattern_of(const Program&, const Actor&, const Move&);

}  // namespace linkscope
