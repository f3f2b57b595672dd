// A message of the loop of a process, as the libraries that carry it take it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "base/units.hpp"

namespace linkscope {

/// Iteration i has the `bytes` at start + i % slices * stride.
struct RankPost {
  bool sends = false;
  bool on_gpu = false;  // the memory is a GPU's
  u32 peer = 0;
  std::byte* start = nullptr;
  u64 bytes = 0, stride = 0, slices = 1;

  [[nodiscard]] std::byte* at(u64 iteration) const { return slices <= 1 ? start : start + iteration % slices * stride; }
};

/// Whether the loop also has the opposite message with that process.
[[nodiscard]] inline bool is_bidirectional(std::span<const RankPost> posts, const RankPost& post) {
  return std::any_of(posts.begin(), posts.end(),
                     [&](const RankPost& other) { return other.peer == post.peer && other.sends != post.sends; });
}

}  // namespace linkscope
