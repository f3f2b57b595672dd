// Host memory whose pages lie where they were asked to lie, and the proof of it.
#pragma once
#include <cstddef>
#include <string>

#include "base/units.hpp"

namespace linkscope {

/// While it lives, pages that this thread makes the kernel allocate come from one NUMA node (dense number).
class NodePolicy {
 public:
  explicit NodePolicy(u32 node);
  ~NodePolicy();
  NodePolicy(const NodePolicy&) = delete;
  NodePolicy& operator=(const NodePolicy&) = delete;

 private:
  bool set_ = false;
};

/// Owns anonymous memory bound to a NUMA node, every page backed before the constructor returns.
class HostPages {
 public:
  HostPages() = default;
  HostPages(u32 node, u64 bytes);
  ~HostPages();
  HostPages(HostPages&& other) noexcept;
  HostPages& operator=(HostPages&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] u64 size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  u64 bytes_ = 0;
};

/// Where the pages of a range are, sampled: "numa:0", "numa:0 3 of 64, numa:1 61 of 64", or "hidden" where the kernel
/// does not say (memory of a driver, a sandbox).
[[nodiscard]] std::string page_nodes(const void* start, u64 bytes);

}  // namespace linkscope
