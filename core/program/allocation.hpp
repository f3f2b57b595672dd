// The life of memory, from nothing to memory that is in use and back, as programs time it: one phase after the other.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"

namespace linkscope {

/// The phases of a kind, in order; none: such memory has no calls here. "touch" writes a word into each page, and is the
/// first to do so. Memory of the stream-ordered pool is allocated again while the pool keeps what was freed; "grow"
/// allocates from a pool that keeps nothing, and stands in for "allocate".
[[nodiscard]] std::vector<std::string_view> phases_of(MemKind);

/// Of memory that is shared: whether the process that owns it does this phase, and not the one that opens it.
[[nodiscard]] bool by_owner(MemKind, std::string_view phase);

/// Why the actor's process does not do the call's phase: the owner's phases are the owner's. "" where it does.
[[nodiscard]] std::string why_another_process(const Program&, const Actor&, const Call&);

/// Where a call's phase stands among those of a kind; throws Error{usage} where the kind has no such phase.
[[nodiscard]] std::size_t phase_index(MemKind, std::string_view phase);

/// Whether calls allocate the region's memory, and nobody else does.
[[nodiscard]] bool allocated_by_calls(const Program&, u32 region);

}  // namespace linkscope
