#include "transfer/overlaps.hpp"

#include <algorithm>
#include <vector>

#include "transfer/sizes.hpp"

namespace linkscope {
namespace {

struct Ends {
  u64 start, end;
};

bool overlap(u64 a, u64 a_bytes, u64 b, u64 b_bytes) { return a < b ? b - a < a_bytes : a - b < b_bytes; }

[[noreturn]] void refuse_destinations() {
  throw Error{ErrorKind::usage, "the destinations of two blocks overlap; blocks have no order, so make two calls"};
}

void search(std::span<const Block> blocks) {
  std::vector<Ends> written;
  for (const auto& block : blocks)
    if (block.bytes) written.push_back({block.dst, block.dst + block.bytes});
  std::sort(written.begin(), written.end(), [](const Ends& a, const Ends& b) { return a.start < b.start; });
  if (std::adjacent_find(written.begin(), written.end(),
                         [](const Ends& a, const Ends& b) { return b.start < a.end; }) != written.end())
    refuse_destinations();
  for (const auto& block : blocks) {
    if (block.bytes == 0) continue;
    const auto next = std::upper_bound(written.begin(), written.end(), block.src,
                                       [](u64 start, const Ends& one) { return start < one.end; });
    if (next != written.end() && next->start < block.src + block.bytes)
      throw Error{ErrorKind::usage,
                  "the destination of a block overlaps the source of another; blocks have no order, so make two calls, "
                  "or copy through a third buffer"};
  }
}

}  // namespace

void refuse_overlaps(std::span<const Block> blocks) {
  const Block* before = nullptr;
  for (const auto& block : blocks) {
    if (block.bytes == 0) continue;
    refuse_negative("the size of a block", block.bytes);
    if (overlap(block.dst, block.bytes, block.src, block.bytes))
      throw Error{ErrorKind::usage, "source and destination of a block overlap; copy through a third buffer"};
    if (before && overlap(before->dst, before->bytes, block.dst, block.bytes)) refuse_destinations();
    before = &block;
  }
  if (blocks.size() <= searched_blocks) search(blocks);
}

}  // namespace linkscope
