// The memory of regions: allocated, placed, checked, filled, and kept for the next program that wants the like.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "platform/cuda/allocation.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "platform/cuda/device.hpp"
#include "program/program.hpp"
#include "program/row_order.hpp"

namespace linkscope {

/// Owns the memory behind one region. `host` is null for device and managed memory; `device` is 0 for memory that no GPU can reach.
class Buffer {
 public:
  /// `device` is the GPU that holds the memory, or any GPU whose context pins host memory; null: a host without GPUs.
  Buffer(const Driver&, Owner&, Device* device, const Region&, u64 bytes);

  [[nodiscard]] u64 size() const { return bytes_; }
  [[nodiscard]] std::byte* host() const { return memory_.host(); }
  [[nodiscard]] CUdeviceptr address() const { return memory_.address(); }
  [[nodiscard]] Allocation& memory() { return memory_; }
  [[nodiscard]] Device* device() const { return device_; }
  /// Pinned memory is portable: whichever GPU uses it next also fills and compares it.
  void reach_from(Device* device) {
    if (host() && device_) device_ = device;
  }
  [[nodiscard]] MemKind kind() const { return kind_; }
  [[nodiscard]] u64 seed() const { return seed_; }
  /// True when a GPU can read it in place: it is compared there.
  [[nodiscard]] bool reachable() const { return address() != 0; }

  void fill_with_pattern(u64 seed);
  /// The first `bytes`.
  void fill_with(std::byte, u64 bytes);
  /// A cycle of addresses through the first `bytes`, as whoever reaches them calls them: a GPU where one does.
  void fill_with_chain(u64 bytes);

 private:
  const Driver& driver_;
  Device* device_;
  MemKind kind_;
  u64 bytes_;
  u64 seed_ = 0;
  Allocation memory_;
};

/// Buffers by place, kind, process, pages, content and number within a program. They live as long as the
/// platform: a round has one of its own, and so its allocations. Where memory runs out, those that the program does not use are given back.
class Buffers {
 public:
  /// `most`: what programs to come want at most, so that memory which they share is made once.
  Buffers(const Driver&, Owner&, const std::vector<Wanted>& most);
  /// Of the program that comes: what was got for those before may go.
  void begin_program() { ++program_; }
  [[nodiscard]] Buffer& get(const Region&, u32 number, Device*);
  /// Gives back what this program has not got; false where there is nothing like that.
  bool drop_unused();

 private:
  [[nodiscard]] std::unique_ptr<Buffer> made(const Region&, u64 bytes, Device*);
  /// As many bytes as programs to come want of a first buffer like this; 0 where nobody said.
  [[nodiscard]] u64 most_of(const Region&, u32 number) const;

  struct Kept {
    std::unique_ptr<Buffer> buffer;
    u64 program = 0;  // that got it last
  };
  const Driver& driver_;
  Owner& owner_;
  std::map<std::tuple<Place, MemKind, u32, u64, bool, Content, u32>, Kept> kept_;
  std::map<std::pair<Place, MemKind>, u64> most_;
  u64 made_ = 0, program_ = 0;
};

/// What `make` makes. Where there is no memory for it, once more without what the program does not use.
template <class Make>
auto with_room(Buffers& buffers, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory || !buffers.drop_unused()) throw;
  }
  return make();
}

/// Compares part of `checked` with the pattern `seed` from byte `pattern_offset` on; by the GPU where it can reach it.
struct Compared {
  u64 wrong_words = 0;
  u64 first_word = 0;
};
[[nodiscard]] Compared compare(const Driver&, const Buffer& checked, u64 offset, u64 bytes, u64 seed,
                               u64 pattern_offset);
/// Compares so many bytes of slices with what copies of rows leave; likewise.
[[nodiscard]] Compared compare_rows(const Driver&, const Buffer& checked, u64 offset, u64 bytes,
                                    const linkscope_row_copy&);
/// Compares what writing lines of a slice left with the pattern `seed`, and that it left the rest; memory that its GPU reaches.
[[nodiscard]] Compared compare_lines(const Driver&, const Buffer& checked, u64 offset, const Access&, u64 seed);

}  // namespace linkscope
