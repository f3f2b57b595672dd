// Where the bytes of a copy come from, through the copies of other actors.
#pragma once
#include "program/program.hpp"

namespace linkscope {

/// The pattern that a move delivers: its origin within its actor's loop, or, if that is a buffer which another actor fills,
/// the origin of that actor's move. Iterations of both count alike, because the actors wait for each other.
[[nodiscard]] const Span& pattern_of(const Program&, const Actor&, const Move&);

/// The span that fills a span: the origin of the move of any actor, or what the other process sends; null: nobody fills it.
[[nodiscard]] const Span* filled_from(const Program&, const Span&);
/// The span with the pattern that a span receives, through the buffers between; itself if nobody fills it.
[[nodiscard]] const Span& first_filled_from(const Program&, const Span&);
/// Whether a computation of any actor writes the region of the span.
[[nodiscard]] bool is_computed(const Program&, const Span&);
/// Whether a span has what a computation wrote: its region is written by one, or a move of any actor fills it from such.
[[nodiscard]] bool has_result(const Program&, const Span&);

}  // namespace linkscope
