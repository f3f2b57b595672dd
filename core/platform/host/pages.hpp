// Host memory whose pages lie where they were asked to lie, and the proof of it.
#pragma once
#include <cstddef>
#include <filesystem>
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

/// Pages of the range that are not there yet will come from the node (dense number).
void bind_to_node(void* start, u64 bytes, u32 node);

/// Pages of one size; 0: those of the kernel. Transparent ones are the kernel's to give or not, others were reserved.
struct PageSize {
  u64 bytes = 0;
  bool transparent = false;
};

/// "" or why `bytes` on a node (dense number) cannot have such pages: none are reserved, or too few, or transparent ones
/// are off; with the cure. `sys` is where /sys is.
[[nodiscard]] std::string why_no_pages(u32 node, u64 bytes, PageSize, const std::filesystem::path& sys = "/sys");

/// Owns anonymous memory bound to a NUMA node.
class HostPages {
 public:
  HostPages() = default;
  /// Address space only; of reserved huge pages the kernel keeps as many. Throws Error{memory} where it has none left.
  HostPages(u32 node, u64 bytes, PageSize = {});
  ~HostPages();
  HostPages(HostPages&& other) noexcept;
  HostPages& operator=(HostPages&& other) noexcept;

  /// Backs every page, by one thread or by as many as there are CPUs. Throws Error{memory} where the node has none left.
  void back(bool by_one_thread);
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] u64 size() const { return bytes_; }
  /// What pages it really has, in words: "2 MiB", "2 MiB in 60 of 64 MiB", "hidden". Throws Error{failed} where huge
  /// pages were asked for and the kernel gave less than all.
  [[nodiscard]] std::string check_size() const;

 private:
  std::byte *mapping_ = nullptr, *data_ = nullptr;  // transparent huge pages begin at a multiple of their size
  u64 mapped_ = 0, bytes_ = 0;
  u32 node_ = 0;
  PageSize page_;
};

/// Where the pages of a range are, sampled: "numa:0", "numa:0 3 of 64, numa:1 61 of 64", or "hidden" where the kernel
/// does not say (memory of a driver, a sandbox).
[[nodiscard]] std::string page_nodes(const void* start, u64 bytes);

}  // namespace linkscope
