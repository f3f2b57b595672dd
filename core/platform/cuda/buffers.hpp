// The memory of regions: allocated, placed, checked, filled, and kept for the next program that wants the like.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "platform/cuda/allocation.hpp"
#include "platform/cuda/device.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Owns the memory behind one region. `host` is null for device and managed memory; `device` is 0 for memory that no GPU can reach.
class Buffer {
 public:
  /// `device` is the GPU that holds the memory, or any GPU whose context pins host memory; null: a host without GPUs.
  Buffer(const Driver&, Device* device, const Region&, u64 bytes);

  [[nodiscard]] u64 size() const { return bytes_; }
  [[nodiscard]] std::byte* host() const { return memory_.host(); }
  [[nodiscard]] CUdeviceptr address() const { return memory_.address(); }
  [[nodiscard]] Allocation& memory() { return memory_; }
  [[nodiscard]] Device* device() const { return device_; }
  /// Pinned memory is portable: whichever GPU uses it next also fills and compares it.
  void reach_from(Device* device) { if (host() && device_) device_ = device; }
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

/// Buffers by place, kind, pages, content and number within a program. They live as long as the worker: a round is a fresh
/// process, and so are its allocations.
class Buffers {
 public:
  explicit Buffers(const Driver& driver) : driver_{driver} {}
  [[nodiscard]] Buffer& get(const Region&, u32 number, Device*);

 private:
  const Driver& driver_;
  std::map<std::tuple<Place, MemKind, u64, bool, Content, u32>, std::unique_ptr<Buffer>> kept_;
  u64 made_ = 0;
};

/// Compares part of `checked` with the pattern `seed` from byte `pattern_offset` on; by the GPU where it can reach it.
struct Compared {
  u64 wrong_words = 0;
  u64 first_word = 0;
};
[[nodiscard]] Compared compare(const Driver&, const Buffer& checked, u64 offset, u64 bytes, u64 seed, u64 pattern_offset);

}  // namespace linkscope
