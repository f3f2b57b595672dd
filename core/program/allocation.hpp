// The life of memory from nothing to usable memory and back, as programs time it: one phase after the other.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "program/program.hpp"

namespace linkscope {

/// The phases of a kind, in order; none: such memory has no calls here. "touch" writes the first word into each page.
/// Memory of the stream-ordered pool is allocated again while the pool keeps freed memory; "grow" allocates from a pool
/// that keeps nothing, in place of "allocate".
[[nodiscard]] std::span<const std::string_view> phases_of(MemKind);

/// For shared memory: whether the process that owns it runs this phase, and not the one that opens it.
[[nodiscard]] bool by_owner(MemKind, std::string_view phase);

/// Why the actor's process does not run the call's phase: the owner runs its own phases. "" if it does.
[[nodiscard]] std::string why_another_process(const Program&, const Actor&, const Call&);

/// The index of a call's phase among those of a kind; throws Error{usage} if the kind has no such phase.
[[nodiscard]] std::size_t phase_index(MemKind, std::string_view phase);

/// Whether only calls allocate the region's memory.
[[nodiscard]] bool allocated_by_calls(const Program&, u32 region);

}  // namespace linkscope
