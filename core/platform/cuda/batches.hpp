// A batch: the number of iterations of each actor in one sample.
#pragma once
#include <vector>

#include "program/program.hpp"

namespace linkscope {

/// The number of iterations that access everything an actor accesses.
[[nodiscard]] u32 whole_footprint(const Program&, const Actor&);
/// One iteration of each actor, or as many as access all of its memory. Actors that exchange words have one count.
[[nodiscard]] std::vector<u32> rehearsal_batch(const Program&, bool all_memory);
/// The batch, or the part of it that accesses all memory once.
[[nodiscard]] std::vector<u32> at_most_footprint(const Program&, std::vector<u32> batch);
/// Whether no actor has more iterations in the small batch than in the large one.
[[nodiscard]] bool within(const std::vector<u32>& small, const std::vector<u32>& large);
[[nodiscard]] std::vector<u32> halved(std::vector<u32> batch);

}  // namespace linkscope
