// Copies of many scattered blocks in one call.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "transfer/block.hpp"
#include "transfer/methods.hpp"

namespace linkscope {

using Block = linkscope_block;

/// Blocks by what can move them.
struct SortedBlocks {
  std::span<const Block> direct;        // the GPU reaches both ends; all blocks of the caller, or those in `held`
  std::vector<Block> to_gpu, from_gpu;  // the other end is pageable
  std::vector<Block> others;
  std::vector<Block> held;
};

/// Throws Error{usage} with all names.
[[nodiscard]] BlockMethod block_method_named(std::string_view name);
[[nodiscard]] const char* to_string(BlockMethod);
/// Of at least one block.
[[nodiscard]] u64 mean_bytes(std::span<const Block>);

/// The lane's GPU is the one that must reach the memory. Throws Error{usage} for pageable memory that cannot be used.
[[nodiscard]] SortedBlocks sort_blocks(const Resources&, std::span<const Block>, const CopyLane&);

/// Queues the blocks that the GPU reaches.
void copy_direct(const Resources&, std::span<const Block>, const CopyLane&);
/// Packs blocks in pinned slots, which a kernel scatters; or the other direction. Pageable memory is finished as by
/// copy().
void copy_packed(const Resources&, const std::vector<Block>&, const CopyLane&, bool to_gpu);

}  // namespace linkscope
