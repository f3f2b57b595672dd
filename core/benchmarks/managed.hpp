// Common parts of operations on managed memory: pages that are at their home when a sample begins.
#pragma once
#include "benchmarks/copies.hpp"

namespace linkscope {

inline const std::vector<std::pair<MemKind, MemKind>> managed_memory{{MemKind::managed, MemKind::managed}};

/// With the host at one end, ordinary memory of the operating system as well, used in place.
inline const std::vector<std::pair<MemKind, MemKind>> moving_memory{{MemKind::managed, MemKind::managed},
                                                                    {MemKind::system, MemKind::system}};

/// A program without actors, with direct access between GPUs where the case asks for it.
[[nodiscard]] Program managed_program(const Case&);
/// Between GPUs: whether pages move directly.
[[nodiscard]] Param managed_peer_param();

/// The advice for the pages, and the one of `home` and `to` that it names.
[[nodiscard]] Param advice_param();

/// Pages that move from their home. They return before every sample, so at most `iterations` of a loop find them there.
struct Migration {
  Place home, to, by;  // `by`: who moves them
  u64 bytes = 0;
  Content content = Content::pattern;
  u32 iterations = 1;
};
/// Adds a region of pages at home, an actor whose loop is `step` (on region 0; it is given the new one), and the flow.
void add_migration(Program&, const Case&, const Migration&, Step step);

/// A program with the migration that `add` adds from the case's source to its destination, and back if it is
/// bidirectional.
template <class Add>
[[nodiscard]] Program migrations(const Case& c, Add add) {
  Program program = managed_program(c);
  add(program, c, c.src, c.dst);
  if (c.param("bidirectional", "false") == "true") add(program, c, c.dst, c.src);
  return program;
}

}  // namespace linkscope
