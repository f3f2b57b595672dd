// Settings of the library: which method copies of a size use and how, and the bounds of the whole.
#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

/// Methods, as the table in methods.cpp orders them.
enum class MethodId : u8 {
  host,
  ring_to_gpu,
  ring_to_fresh,
  ring_to_host,
  relay_to_gpu,
  relay_to_host,
  between_gpus,
  within_gpu,
  between_peers,
  plain
};
inline constexpr std::size_t method_count = 10;

/// The first size of each size class; a class ends where the next one begins. Smaller copies are always plain.
inline constexpr std::array<u64, 8> size_classes{u64{64} << 10, u64{256} << 10, u64{1} << 20,   u64{4} << 20,
                                                 u64{16} << 20, u64{64} << 20,  u64{256} << 20, u64{768} << 20};
/// The same for the mean size of many blocks.
inline constexpr std::array<u64, 8> block_classes{0,         u64{1} << 10, u64{4} << 10, u64{8} << 10, u64{16} << 10,
                                                  64u << 10, 256u << 10,   512u << 10};
/// The same for the mean size of many pageable blocks, and for all bytes of a reading of a file.
inline constexpr std::array<u64, 5> packed_classes{0, u64{4} << 10, u64{16} << 10, u64{64} << 10, u64{512} << 10};
inline constexpr std::array<u64, 4> file_classes{0, u64{1} << 20, u64{16} << 20, u64{256} << 20};

/// The class of a size. Sizes below the first class have its number.
[[nodiscard]] constexpr std::size_t class_of(std::span<const u64> starts, u64 bytes) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), bytes);
  return next == starts.begin() ? 0 : static_cast<std::size_t>(next - starts.begin() - 1);
}

/// How a method divides copies of one size class. All values are valid also if the copies are plain: reading files and
/// packing blocks use them.
struct Knobs {
  bool plain = true;    // copies are one call of the driver
  u32 threads = 1;      // CPU threads, with the caller
  u64 chunk = 1;        // bytes of the largest chunk
  u32 depth = 1;        // slots of a thread
  u32 chunks_each = 8;  // chunks of a thread, at least: short copies have shorter chunks
  u64 piece = 0;        // bytes of one call of memcpy; 0: the chunk
  u32 sm_blocks = 0;    // thread blocks, one an SM, of a kernel that moves whole copies; 0: the copy engine does
  u64 sm_chunk = 1;     // bytes of a chunk of that kernel
  u32 links = 1;        // links of GPUs that copies by copy engine use: the own one, and those of allowed helpers
  bool cufile = false;  // cuFile moves files of read_cold and write_file, where it works
  bool tma = false;     // that kernel uses the Tensor Memory Accelerator where the GPU and the addresses allow it
  u32 uring = 0;  // of read_cold and write_file: requests of io_uring in flight, which one thread starts; 0: threads
                  // read or write
  bool mapped = false;  // of read_cached: the GPU copies from the page cache, where it can be mapped and pinned
  bool operator==(const Knobs&) const = default;
};

/// How blocks are moved that a GPU reaches at both ends.
enum class BlockMethod : u8 { loop, batch, kernel };

struct BlockKnobs {
  BlockMethod method = BlockMethod::kernel;
  u32 sm_blocks = 8;  // thread blocks of the kernel, one an SM
  bool operator==(const BlockKnobs&) const = default;
};

enum class Towards : u8 { gpu, host };

/// Work through pinned slots that is not a copy of one range: blocks of pageable memory that are packed, and files to a
/// GPU, from the page cache and past it, and from a GPU.
enum class StagedWork : u8 { packed_to_gpu, packed_to_host, read_cached, read_cold, write_file };
inline constexpr std::array staged_works{StagedWork::packed_to_gpu, StagedWork::packed_to_host, StagedWork::read_cached,
                                         StagedWork::read_cold, StagedWork::write_file};
[[nodiscard]] const char* name_of(StagedWork);
/// The first sizes of its classes: packed_classes or file_classes.
[[nodiscard]] std::span<const u64> classes_of(StagedWork);

struct Options {
  bool plain = false;  // every copy is one call of the driver
  u64 arena_bytes = u64{256} << 20;
  u64 slot_bytes = u64{4} << 20;
  u64 registered_bytes;         // bound of the memory that the application registers; by default half of the host's
  std::vector<u32> helpers{};   // GPUs whose links copies from and to other GPUs may use, in PCI bus order
  std::string tuning = "none";  // "auto": the file of this machine; "none"; or a path
  std::array<std::array<Knobs, size_classes.size()>, method_count> knobs;
  std::array<std::array<BlockKnobs, block_classes.size()>, 2> blocks;  // by Towards
  std::array<std::array<Knobs, packed_classes.size()>, staged_works.size()> staged;

  /// Sensible values before any tuning, for the number of CPUs that this process may use.
  Options();
  /// The same with LINKSCOPE_TRANSFER=plain|auto, LINKSCOPE_TRANSFER_ARENA=BYTES, LINKSCOPE_TRANSFER_REGISTERED=BYTES,
  /// LINKSCOPE_TRANSFER_HELPERS=N,N,… and LINKSCOPE_TRANSFER_TUNING=FILE|none. Throws Error{usage}.
  [[nodiscard]] static Options from_environment();

  /// The same knobs for all sizes; copies below `from_bytes` are plain.
  void set_all(MethodId, Knobs, u64 from_bytes);
  [[nodiscard]] const Knobs& of(MethodId id, u64 bytes) const {
    return knobs[static_cast<std::size_t>(id)][class_of(size_classes, bytes)];
  }
  [[nodiscard]] Knobs& of(MethodId id, u64 bytes) {
    return knobs[static_cast<std::size_t>(id)][class_of(size_classes, bytes)];
  }
  /// Whether copies of this size use the method and not the driver.
  [[nodiscard]] bool uses(MethodId id, u64 bytes) const {
    return bytes >= size_classes.front() && !of(id, bytes).plain;
  }
  [[nodiscard]] const BlockKnobs& of(Towards towards, u64 mean_bytes) const {
    return blocks[static_cast<std::size_t>(towards)][class_of(block_classes, mean_bytes)];
  }
  [[nodiscard]] BlockKnobs& of(Towards towards, u64 mean_bytes) {
    return blocks[static_cast<std::size_t>(towards)][class_of(block_classes, mean_bytes)];
  }
  /// `bytes`: the mean size of packed blocks, or all bytes of a reading.
  [[nodiscard]] const Knobs& of(StagedWork work, u64 bytes) const {
    return staged[static_cast<std::size_t>(work)][class_of(classes_of(work), bytes)];
  }
  [[nodiscard]] Knobs& of(StagedWork work, u64 bytes) {
    return staged[static_cast<std::size_t>(work)][class_of(classes_of(work), bytes)];
  }

 private:
  void set_staged_defaults(u32 cpus);
};
static_assert(file_classes.size() <= packed_classes.size());

/// Throws Error{usage} for knobs that no copy can have.
void check(const Knobs&);
void check(const BlockKnobs&);

}  // namespace linkscope
