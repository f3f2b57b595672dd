#include "program/collectives.hpp"

#include <array>
#include <string>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr std::array<const char*, collective_kinds> names{"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                          "reduce",     "all_to_all", "send_receive"};
constexpr std::array<const char*, number_types> type_names{"f32", "f64", "bf16", "u32"};

}  // namespace

const char* to_string(CollectiveKind kind) { return names[static_cast<std::size_t>(kind)]; }

CollectiveKind parse_collective(std::string_view text) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (text == names[i]) return static_cast<CollectiveKind>(i);
  throw Error{ErrorKind::usage, "'" + std::string{text} + "' is not a collective"};
}

const char* to_string(NumberType type) { return type_names[static_cast<std::size_t>(type)]; }

NumberType parse_number_type(std::string_view text) {
  for (std::size_t i = 0; i < type_names.size(); ++i)
    if (text == type_names[i]) return static_cast<NumberType>(i);
  throw Error{ErrorKind::usage, "collectives are of f32, f64, bf16 and u32, and not of '" + std::string{text} + "'"};
}

bool adds(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
}

bool in_blocks(CollectiveKind kind) {
  return kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter ||
         kind == CollectiveKind::all_to_all;
}

CollectiveBytes bytes_of(CollectiveKind kind, u64 bytes, u32 ranks) {
  if (kind == CollectiveKind::all_gather) return {bytes / ranks, bytes};
  if (kind == CollectiveKind::reduce_scatter) return {bytes, bytes / ranks};
  return {bytes, bytes};
}

std::vector<OutputPart> output_of(CollectiveKind kind, u64 bytes, u32 rank, u32 ranks) {
  const u64 block = bytes / ranks;
  std::vector<OutputPart> parts;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return {{all_ranks, 0, 0, bytes}};
    case CollectiveKind::reduce:
      if (rank == 0) parts.push_back({all_ranks, 0, 0, bytes});
      return parts;
    case CollectiveKind::reduce_scatter:
      return {{all_ranks, rank * block, 0, block}};
    case CollectiveKind::broadcast:
      return {{0, 0, 0, bytes}};
    case CollectiveKind::send_receive:
      return {{(rank + ranks - 1) % ranks, 0, 0, bytes}};
    case CollectiveKind::all_gather:
      for (u32 other = 0; other < ranks; ++other) parts.push_back({other, 0, other * block, block});
      return parts;
    case CollectiveKind::all_to_all:
      for (u32 other = 0; other < ranks; ++other) parts.push_back({other, rank * block, other * block, block});
      return parts;
  }
  return parts;
}

}  // namespace linkscope
