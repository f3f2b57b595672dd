// Settings of the library: what a method of copying needs to know, and the bounds of the whole.
#pragma once
#include <array>
#include <string>

#include "base/units.hpp"

namespace linkscope {

/// Methods, as the table in methods.cpp orders them.
enum class MethodId : u8 { host, ring_to_gpu, ring_to_fresh, ring_to_host, plain };
inline constexpr std::size_t method_count = 5;

/// How a method divides a copy.
struct Knobs {
  u64 from_bytes = 0;  // smaller copies are not for this method
  u32 threads = 1;     // CPU threads, with the caller
  u64 chunk = 0;       // bytes of the largest chunk; short copies have smaller ones
  u32 depth = 1;       // slots of a thread
  u64 piece = 0;       // bytes of one call of memcpy; 0: the chunk
  u32 sm_blocks = 0;   // thread blocks of a kernel that moves the chunks, one an SM; 0: the copy engine does
};

enum class Towards : u8 { gpu, host };

/// How blocks are moved that a GPU reaches at both ends.
enum class BlockMethod : u8 { automatic, loop, batch, kernel };

struct BlockKnobs {
  BlockMethod method = BlockMethod::automatic;
  u32 sm_blocks = 0;               // thread blocks of the kernel, one an SM; 0: by direction and size
  u64 loop_from = u64{512} << 10;  // the copy engine alone fills the link with blocks of this size
};

struct Options {
  bool plain = false;  // every copy is one call of the driver
  u64 arena_bytes = u64{256} << 20;
  u64 slot_bytes = u64{4} << 20;
  std::array<Knobs, method_count> knobs;
  BlockKnobs blocks;

  /// Sensible values before any tuning, for the number of CPUs that this process may use.
  Options();
  /// The same with LINKSCOPE_TRANSFER=plain|auto and LINKSCOPE_TRANSFER_ARENA=BYTES. Throws Error{usage}.
  [[nodiscard]] static Options from_environment();

  [[nodiscard]] const Knobs& of(MethodId id) const { return knobs[static_cast<std::size_t>(id)]; }
  [[nodiscard]] Knobs& of(MethodId id) { return knobs[static_cast<std::size_t>(id)]; }
};

}  // namespace linkscope
