// Operations of all ranks of a group (collectives): their names, and what each rank reads and writes.
#pragma once
#include <string_view>
#include <vector>

#include "base/collective.hpp"

namespace linkscope {

[[nodiscard]] const char* to_string(CollectiveKind);
/// Throws Error{usage} for an unknown name.
[[nodiscard]] CollectiveKind parse_collective(std::string_view);

[[nodiscard]] const char* to_string(NumberType);
/// Throws Error{usage} for an unknown name.
[[nodiscard]] NumberType parse_number_type(std::string_view);

/// Whether the ranks' numbers are added.
[[nodiscard]] bool adds(CollectiveKind);
/// Whether the kind's buffers consist of a block for each rank.
[[nodiscard]] bool in_blocks(CollectiveKind);

/// The bytes that each rank reads and writes. `bytes`: those of the larger buffer, as nccl-tests count them.
struct CollectiveBytes {
  u64 in = 0, out = 0;
};
[[nodiscard]] CollectiveBytes bytes_of(CollectiveKind, u64 bytes, u32 ranks);

/// What a rank's output consists of: its bytes [to, to + bytes) are those of `from` of that rank's input, or the sum of
/// the same bytes of all ranks' inputs if `rank` is `all_ranks`.
struct OutputPart {
  u32 rank = 0;
  u64 from = 0, to = 0, bytes = 0;
};
inline constexpr u32 all_ranks = ~u32{0};
/// The parts of a rank's output; none if the kind leaves it alone. `bytes` as in bytes_of().
[[nodiscard]] std::vector<OutputPart> output_of(CollectiveKind, u64 bytes, u32 rank, u32 ranks);

}  // namespace linkscope
