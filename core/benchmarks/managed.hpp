// What operations on managed memory have in common: pages that are at home when a sample begins.
#pragma once
#include "benchmarks/copies.hpp"

namespace linkscope {

inline const std::vector<std::pair<MemKind, MemKind>> managed_memory{{MemKind::managed, MemKind::managed}};

/// Where one end is the host's: memory of the operating system as well, used as it is.
inline const std::vector<std::pair<MemKind, MemKind>> moving_memory{{MemKind::managed, MemKind::managed},
                                                                    {MemKind::system, MemKind::system}};

/// A program without actors, with direct access between GPUs where the case asks for it.
[[nodiscard]] Program managed_program(const Case&);
/// Between GPUs: whether pages move directly.
[[nodiscard]] Param managed_peer_param();

/// What the driver is told of the pages, and what of `home` and `to` that names.
[[nodiscard]] Param advice_param();

/// Adds a managed region of `bytes` at home, an actor whose loop is `step` (of region 0; it is given the new one), and the
/// flow. Before every sample the pages go home, so `iterations` of the loop, and no more, find theirs there.
void add_migration(Program&, const Case&, const Place& home, const Place& to, const Place& by, Content, u64 bytes,
                   Step step, u32 iterations);

/// A program to which `add` adds the migration from the case's source to its destination, and back where both ways are asked for.
template <class Add>
[[nodiscard]] Program migrations(const Case& c, Add add) {
  Program program = managed_program(c);
  add(program, c, c.src, c.dst);
  if (c.param("bidirectional", "false") == "true") add(program, c, c.dst, c.src);
  return program;
}

}  // namespace linkscope
