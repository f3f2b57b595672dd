#include "transfer/blocks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "host/own_memory.hpp"
#include "transfer/capture.hpp"
#include "transfer/staged.hpp"

namespace linkscope {
namespace {

using namespace literals;

constexpr u64 kernel_piece = 16_KiB;  // longer blocks are divided, so that all warps have work
// The GPU starts when so much is listed, which takes it longer than the CPU needs for a launch.
constexpr u64 first_part = 1_MiB, part_growth = 8;

/// One end of all blocks. Most blocks of a call lie in few allocations, and a question to the driver takes 0.3 µs, so what
/// is known of an allocation is kept.
class End {
 public:
  /// `gpu` must reach the memory. `access` is what CPU threads do with memory that it does not reach.
  End(const Resources& with, CUdevice gpu, Access access, const char* refusal)
      : driver_{with.driver}, pages_{with.pages}, gpu_{gpu}, access_{access}, refusal_{refusal} {}
  /// Whether the GPU reaches these bytes. Until the next call, memory() is theirs.
  [[nodiscard]] bool is_reached(u64 address, u64 bytes) {
    if (address < start_ || address + bytes > end_) locate_at(address, bytes);
    return reached_;
  }
  [[nodiscard]] MemoryType memory() const { return known_.memory; }

 private:
  void locate_at(u64 address, u64 bytes) {
    known_ = locate_all(driver_, to_pointer(address), bytes);
    reached_ = known_.memory == MemoryType::pinned || (known_.memory == MemoryType::device && known_.device == gpu_);
    start_ = address;
    end_ = address + std::max(bytes, bytes_from(driver_, to_pointer(address)));
    if (known_.memory != MemoryType::pageable) return;
    if (!is_usable(address, bytes)) throw Error{ErrorKind::usage, refusal_};
    // Memory of a GPU never shares a huge page of addresses with memory that the driver does not know. Where a part of
    // it is not mapped or protected, each block is checked: a thread that packs a freed one would end the process.
    constexpr u64 huge_page = 2_MiB;
    const u64 next = address / huge_page * huge_page + huge_page;
    if (next > end_ && is_mapped(to_pointer(end_), next - end_) &&
        !pages_.first_refused(to_pointer(end_), next - end_, access_))
      end_ = next;
  }
  [[nodiscard]] bool is_usable(u64 address, u64 bytes) const {
    void* start = reinterpret_cast<void*>(address);
    return (access_ == Access::read ? can_read(start, bytes) : can_write(start, bytes)) &&
           !pages_.first_refused(start, bytes, access_);
  }

  const Driver& driver_;
  const PageAccess& pages_;
  CUdevice gpu_;
  Access access_;
  const char* refusal_;
  u64 start_ = 0, end_ = 0;
  Location known_;
  bool reached_ = false;
};

/// Blocks of at most `most` bytes that together are the given ones.
std::vector<Block> divided(const std::vector<Block>& blocks, u64 most) {
  std::vector<Block> pieces;
  pieces.reserve(blocks.size());
  for (const auto& block : blocks)
    for (u64 at = 0; at < block.bytes; at += most)
      pieces.push_back({block.dst + at, block.src + at, std::min<u64>(most, block.bytes - at)});
  return pieces;
}

u64 total_bytes(std::span<const Block> blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), u64{0}, [](u64 sum, const Block& b) { return sum + b.bytes; });
}

void launch(const Resources& with, const CopyLane& lane, const std::byte* table, u64 count, unsigned blocks) {
  auto address = reinterpret_cast<CUdeviceptr>(table);
  std::array<void*, 2> arguments{&address, &count};
  with.gpus.at(lane.gpu).launch(with.gpus.block_kernel(lane.gpu), blocks, threads_of_block, lane.stream,
                                arguments.data());
}

/// The GPU reads what it does not write: blocks within its memory count as towards the GPU.
Towards direction(const Resources& with, std::span<const Block> blocks) {
  const auto dst = locate(with.driver, to_pointer(blocks.front().dst));
  return dst.memory == MemoryType::device ? Towards::gpu : Towards::host;
}

/// Lists pieces in slots of the arena and launches the kernel for what is listed: in parts, so that the GPU moves the
/// first pieces while the CPU lists the next.
class ListedPieces {
 public:
  ListedPieces(const Resources& with, const CopyLane& lane, unsigned sm_blocks)
      : with_{with}, lane_{lane}, sm_blocks_{sm_blocks}, fit_{with.arena.slot_bytes() / sizeof(Block)} {
    begin_slot();
  }
  void add(const Block& piece) {
    if (count_ == fit_) {
      end_slot();
      begin_slot();
    }
    table_[count_++] = piece;
    bytes_ += piece.bytes;
    if (bytes_ < part_bytes_) return;
    launch_listed();
    part_bytes_ *= part_growth;
  }
  void end_slot() {
    launch_listed();
    slot().guard(with_.driver);
  }

 private:
  Slot& slot() { return (*lease_)[0]; }
  void begin_slot() {
    lease_.reset(new Arena::Lease(with_.arena.take_free(1)));
    if (lease_->size() == 0) throw Error{ErrorKind::memory, "the arena has no free slot for a list of blocks"};
    table_ = reinterpret_cast<Block*>(slot().data());
    launched_ = count_ = 0;
    slot().expose(lane_);
  }
  void launch_listed() {
    if (count_ > launched_)
      launch(with_, lane_, slot().data() + launched_ * sizeof(Block), count_ - launched_, sm_blocks_);
    launched_ = count_;
    bytes_ = 0;
  }

  const Resources& with_;
  const CopyLane& lane_;
  unsigned sm_blocks_;
  u64 fit_, launched_ = 0, count_ = 0;  // entries of a slot
  u64 bytes_ = 0, part_bytes_ = first_part;
  Block* table_ = nullptr;
  std::unique_ptr<Arena::Lease> lease_;
};

void copy_by_kernel(const Resources& with, std::span<const Block> blocks, const CopyLane& lane, unsigned sm_blocks) {
  const DuringCaptures allowed{with.driver};
  ListedPieces pieces{with, lane, sm_blocks};
  for (const auto& block : blocks)
    for (u64 at = 0; at < block.bytes; at += kernel_piece)
      pieces.add({block.dst + at, block.src + at, std::min<u64>(kernel_piece, block.bytes - at)});
  pieces.end_slot();
}

void copy_by_batch(const Resources& with, std::span<const Block> blocks, const CopyLane& lane) {
  std::vector<CUdeviceptr> dst, src;
  std::vector<std::size_t> sizes;
  for (const auto& block : blocks) {
    dst.push_back(block.dst);
    src.push_back(block.src);
    sizes.push_back(block.bytes);
  }
  CUmemcpyAttributes how{};
  how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t from_first = 0;
  LINKSCOPE_CU(with.driver, cuMemcpyBatchAsync, dst.data(), src.data(), sizes.data(), sizes.size(), &how, &from_first,
               1, lane.stream);
}

void copy_by_loop(const Resources& with, std::span<const Block> blocks, const CopyLane& lane) {
  for (const auto& block : blocks)
    LINKSCOPE_CU(with.driver, cuMemcpyAsync, block.dst, block.src, block.bytes, lane.stream);
}

/// Chunks of pieces that fit into `room` with their entries of the table.
std::vector<Chunk> packed(const std::vector<Block>& pieces, u64 room) {
  std::vector<Chunk> chunks;
  u64 used = room;
  for (u64 i = 0; i < pieces.size(); ++i) {
    const u64 more = sizeof(Block) + pieces[i].bytes + 2 * vector_bytes;
    if (used + more > room) {
      chunks.push_back({i, 0, 0});
      used = 0;
    }
    used += more;
    ++chunks.back().count;
    chunks.back().bytes += pieces[i].bytes;
  }
  return chunks;
}

constexpr std::array<std::string_view, 3> block_method_names{"loop", "batch", "kernel"};

}  // namespace

u64 mean_bytes(std::span<const Block> blocks) { return total_bytes(blocks) / blocks.size(); }

BlockMethod block_method_named(std::string_view name) {
  const auto found = std::find(block_method_names.begin(), block_method_names.end(), name);
  if (found == block_method_names.end())
    throw Error{ErrorKind::usage,
                "'" + std::string{name} + "' is not a method for blocks; write loop, batch or kernel"};
  return static_cast<BlockMethod>(found - block_method_names.begin());
}

const char* to_string(BlockMethod method) { return block_method_names[static_cast<std::size_t>(method)].data(); }

SortedBlocks sort_blocks(const Resources& with, std::span<const Block> blocks, const CopyLane& lane) {
  SortedBlocks sorted;
  const CUdevice own = with.gpus.at(lane.gpu).facts().handle;
  End dst{with, own, Access::write, "the destination of a block is no memory that this process can write"};
  End src{with, own, Access::read, "the source of a block is no memory that this process can read"};
  const auto list_for = [&](const Block& block) -> std::vector<Block>& {
    const bool dst_reached = dst.is_reached(block.dst, block.bytes),
               src_reached = src.is_reached(block.src, block.bytes);
    if (dst_reached && src_reached) return sorted.held;
    if (src.memory() == MemoryType::pageable && dst.memory() == MemoryType::device && dst_reached) return sorted.to_gpu;
    if (dst.memory() == MemoryType::pageable && src.memory() == MemoryType::device && src_reached)
      return sorted.from_gpu;
    return sorted.others;
  };
  // Most calls have no other blocks than direct ones: their list is not copied.
  const auto other = std::find_if(blocks.begin(), blocks.end(), [&](const Block& block) {
    return block.bytes == 0 || &list_for(block) != &sorted.held;
  });
  sorted.direct = blocks;
  if (other == blocks.end()) return sorted;
  sorted.held.assign(blocks.begin(), other);
  for (const auto& block : std::span{other, blocks.end()})
    if (block.bytes) list_for(block).push_back(block);
  sorted.direct = sorted.held;
  return sorted;
}

void copy_direct(const Resources& with, std::span<const Block> blocks, const CopyLane& lane) {
  if (blocks.empty()) return;
  constexpr std::size_t few = 4;
  const CurrentContext current{with.driver, lane.context};
  const auto& knobs = with.options.of(direction(with, blocks), mean_bytes(blocks));
  switch (blocks.size() < few ? BlockMethod::loop : knobs.method) {
    case BlockMethod::batch:
      return copy_by_batch(with, blocks, lane);
    case BlockMethod::loop:
      return copy_by_loop(with, blocks, lane);
    case BlockMethod::kernel:
      return copy_by_kernel(with, blocks, lane, knobs.sm_blocks);
  }
}

void copy_packed(const Resources& with, const std::vector<Block>& blocks, const CopyLane& lane, bool to_gpu) {
  if (blocks.empty()) return;
  const auto pieces = divided(blocks, kernel_piece);
  const auto& knobs =
      with.options.of(to_gpu ? StagedWork::packed_to_gpu : StagedWork::packed_to_host, mean_bytes(blocks));
  const u64 slot_bytes = with.arena.slot_bytes(), least = std::min(2 * kernel_piece, slot_bytes),
            most = std::clamp(knobs.chunk, least, slot_bytes),
            even = total_bytes(blocks) / (u64{knobs.chunks_each} * knobs.threads);
  RingWork work;
  work.chunks = packed(pieces, std::clamp(even, least, most));
  // A slot holds the table for the kernel, then the data.
  const auto each = [&pieces, to_gpu](std::byte* slot, Chunk chunk, auto&& visit) {
    u64 at = reinterpret_cast<u64>(slot) + chunk.count * sizeof(Block);
    for (u64 i = 0; i < chunk.count; ++i) {
      const Block& piece = pieces[chunk.at + i];
      const u64 on_gpu = to_gpu ? piece.dst : piece.src;
      at = (at + vector_bytes - 1) / vector_bytes * vector_bytes + on_gpu % vector_bytes;
      visit(i, piece, at);
      at += piece.bytes;
    }
  };
  const auto list = [&](std::byte* slot, Chunk chunk) {
    auto* table = reinterpret_cast<Block*>(slot);
    each(slot, chunk, [&](u64 i, const Block& piece, u64 at) {
      table[i] = to_gpu ? Block{piece.dst, at, piece.bytes} : Block{at, piece.src, piece.bytes};
    });
  };
  work.by_cpu = [&](std::byte* slot, Chunk chunk) {
    each(slot, chunk, [&](u64, const Block& piece, u64 at) {
      if (to_gpu) std::memcpy(to_pointer(at), to_pointer(piece.src), piece.bytes);
      else std::memcpy(to_pointer(piece.dst), to_pointer(at), piece.bytes);
    });
    if (to_gpu) list(slot, chunk);
  };
  work.queue = [&](std::byte* slot, Chunk chunk) {
    if (!to_gpu) list(slot, chunk);
    launch(with, lane, slot, chunk.count, std::max(knobs.sm_blocks, 1u));
  };
  Progress progress;
  run_ring(with, lane, work, knobs, to_gpu ? Towards::gpu : Towards::host, progress);
}

}  // namespace linkscope
