// Blocks that one call cannot copy, because they overlap and have no order.
#pragma once
#include <span>

#include "transfer/blocks.hpp"

namespace linkscope {

/// Calls of at most so many blocks are searched for all overlaps. More would delay small copies.
inline constexpr std::size_t searched_blocks = 64;

/// Throws Error{usage} for a block whose ends overlap, for destinations of neighbours in the list that overlap (and so for
/// all that overlap in a list in ascending or descending order), and in short lists for any destination that overlaps
/// another destination or a source.
void refuse_overlaps(std::span<const Block>);

}  // namespace linkscope
