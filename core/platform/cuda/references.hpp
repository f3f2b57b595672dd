// Results of computations, and the inputs that they follow from, on the host.
#pragma once
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "base/pattern.hpp"
#include "base/short_floats.hpp"
#include "platform/cuda/verification.hpp"

namespace linkscope {

/// The input of a computation: part of a pattern.
struct Input {
  u64 seed = 0, offset = 0;  // bytes

  /// Element `index` of type T.
  template <class T>
  [[nodiscard]] T at(u64 index) const {
    const u64 byte = offset + index * sizeof(T), word = linkscope_pattern_word(seed, byte / sizeof(u64));
    T value;
    std::memcpy(&value, reinterpret_cast<const char*>(&word) + byte % sizeof(u64), sizeof value);
    return value;
  }
};

/// The pattern that a span holds, or that a move of any actor brings there; none if the span has other contents.
[[nodiscard]] std::optional<Input> input_of(const CudaSession&, const Span&, u64 slice = 0);

/// The contents of a slice, to be read on the host: host memory in place, a GPU's as a copy.
class Contents {
 public:
  Contents(const CudaSession&, const Span&, u64 slice = 0);

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  std::unique_ptr<std::byte[]> copy_;
  std::span<const std::byte> bytes_;
};

/// Calls `look(position)` for all positions below `size`, or for spread ones if there are more than `most`.
template <class Look>
void look_at(u64 size, u64 most, Look look) {
  for (u64 i = 0; i < std::min(size, most); ++i) look(size <= most ? i : linkscope_pattern_word(most, i) % size);
}

/// Adds the comparison of a copy whose source is a result, with that result.
void check_copy_of_result(const CudaSession&, const Span& from, const Span& to, u64 iterations, Checks&);

}  // namespace linkscope
