// The order in which an actor makes the steps of its loop.
#pragma once
#include "program/program.hpp"

namespace linkscope {

/// A pass of an iteration through the steps of a loop, or of one of its two parts: those from `first_step` to before
/// `end_step`. `pass` counts on over all iterations.
struct Turn {
  u64 pass;
  std::size_t first_step, end_step;
};

/// Calls `act` with each turn of `count` passes from `first`: whole iterations of `passes` each (Program::passes).
template <class Act>
void for_each_turn(const Actor& actor, u32 passes, u64 first, u64 count, Act act) {
  const std::size_t split = actor.first_steps, all = actor.loop.size();
  if (split == 0) {
    for (u64 pass = first; pass < first + count; ++pass) act(Turn{pass, 0, all});
    return;
  }
  for (u64 begun = first; begun < first + count; begun += passes)
    for (const auto& [from, to] : {std::pair{std::size_t{0}, split}, std::pair{split, all}})
      for (u64 pass = begun; pass < begun + passes; ++pass) act(Turn{pass, from, to});
}

}  // namespace linkscope
