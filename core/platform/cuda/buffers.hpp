// The memory of regions: allocated, placed, checked, filled, and kept for later programs with equal regions.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "gpu/device.hpp"
#include "platform/cuda/allocation.hpp"
#include "platform/cuda/contents.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "program/program.hpp"
#include "program/row_order.hpp"

namespace linkscope {

/// Owns the memory behind one region. `host` is null for device and managed memory; `device` is 0 for memory that no
/// GPU can access.
class Buffer {
 public:
  /// `device` is the GPU that holds the memory, or any GPU whose context pins host memory; null: a host without GPUs.
  Buffer(const Driver&, Device* device, const Region&, u64 bytes);
  /// Memory of another process, as that process shared it.
  Buffer(const Driver&, Device* device, const Region&, u64 bytes, Share);

  [[nodiscard]] u64 size() const { return bytes_; }
  [[nodiscard]] std::byte* host() const { return memory_.host(); }
  [[nodiscard]] CUdeviceptr address() const { return memory_.address(); }
  [[nodiscard]] Allocation& memory() { return memory_; }
  [[nodiscard]] const Allocation& memory() const { return memory_; }
  [[nodiscard]] Device* device() const { return device_; }
  /// Pinned memory is portable, so that the next GPU that uses it can also fill and compare it.
  void reach_from(Device* device) {
    if (host() && device_) device_ = device;
  }
  [[nodiscard]] MemKind kind() const { return kind_; }
  [[nodiscard]] u64 seed() const { return seed_; }
  /// Whether a GPU can read the memory in place and so compare it.
  [[nodiscard]] bool reachable() const { return address() != 0; }

  void fill_with_pattern(u64 seed);
  /// Another process fills it with this pattern.
  void expect_pattern(u64 seed) { seed_ = seed; }
  /// Fills the first `bytes`.
  void fill_with(std::byte, u64 bytes);
  /// Writes a cycle of addresses into the first `bytes`, as the accessing processor calls them: a GPU if there is one.
  void fill_with_chain(u64 bytes);

 private:
  const Driver& driver_;
  Device* device_;
  MemKind kind_;
  u64 bytes_;
  u64 seed_ = 0;
  Allocation memory_;
};

/// Buffers by place, kind, pages, binding, content and number within a program. They live as long as the platform, so each round
/// has its own allocations. If memory runs out, buffers that the program does not use are freed.
class Buffers {
 public:
  /// `most`: the largest demands of later programs, so that memory for several programs is allocated once.
  Buffers(const Driver&, const std::vector<Wanted>& most);
  /// Starts the next program: buffers of earlier ones may be freed.
  void begin_program() { ++program_; }
  [[nodiscard]] Buffer& get(const Region&, u32 number, Device*);
  /// Frees the buffers that this program does not use; false if there are none.
  bool drop_unused();

 private:
  [[nodiscard]] std::unique_ptr<Buffer> made(const Region&, u64 bytes, Device*);
  /// The largest demand of later programs for a first buffer of this kind; 0 if unknown.
  [[nodiscard]] u64 most_of(const Region&, u32 number) const;

  struct Kept {
    std::unique_ptr<Buffer> buffer;
    u64 program = 0;  // the program that used it last
  };
  const Driver& driver_;
  std::map<std::tuple<Place, MemKind, u64, bool, bool, Content, u32>, Kept> kept_;
  std::map<std::pair<Place, MemKind>, u64> most_;
  u64 made_ = 0, program_ = 0;
};

/// The bytes of a buffer: whole grains, so that programs of nearly equal size use the same one.
[[nodiscard]] constexpr u64 whole_grains(u64 bytes) {
  constexpr u64 grain = u64{2} << 20;
  return (bytes + grain - 1) / grain * grain;
}

/// Allocates with `make`. If memory runs out, frees what the program does not use and tries once more.
template <class Make>
auto with_room(Buffers& buffers, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory || !buffers.drop_unused()) throw;
  }
  return make();
}

/// The results of a GPU's kernels (Device::result): one of comparisons, then one for each actor.
inline constexpr std::size_t comparison_result = 0, first_actor_result = 1;

/// Compares part of `checked` with the pattern `seed` from byte `pattern_offset`; on the GPU if it can access the
/// memory.
[[nodiscard]] Mismatch compare(const Driver&, const Buffer& checked, u64 offset, u64 bytes, u64 seed,
                               u64 pattern_offset);
/// Compares slices with the result of row copies; likewise.
[[nodiscard]] Mismatch compare_rows(const Driver&, const Buffer& checked, u64 offset, u64 bytes,
                                    const linkscope_row_copy&);
/// Compares the written lines of a slice with the pattern `seed`, and the rest with its old contents; for memory that
/// its GPU can access.
[[nodiscard]] Mismatch compare_lines(const Driver&, const Buffer& checked, u64 offset, const Access&, u64 seed);

}  // namespace linkscope
