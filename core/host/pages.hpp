// Host memory with requested placement, and the proof of the placement.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

#include "base/units.hpp"

namespace linkscope {

/// In place of a node: pages lie where the thread that first touches them runs.
inline constexpr u32 any_node = ~u32{0};

/// While it lives, the kernel allocates pages for this thread on one NUMA node (dense number), or on any_node.
class NodePolicy {
 public:
  explicit NodePolicy(u32 node);
  ~NodePolicy();
  NodePolicy(const NodePolicy&) = delete;
  NodePolicy& operator=(const NodePolicy&) = delete;

 private:
  bool set_ = false;
};

/// Later pages of the range come from the node (dense number).
void bind_to_node(void* start, u64 bytes, u32 node);

/// Page size; 0: that of the kernel. Transparent huge pages depend on the kernel; others were reserved.
struct PageSize {
  u64 bytes = 0;
  bool transparent = false;
};

/// "" or why `bytes` on a node (dense number) cannot have such pages: none or too few are reserved, or transparent ones
/// are off; with the cure. `sys` is the path of /sys.
[[nodiscard]] std::string why_no_pages(u32 node, u64 bytes, PageSize, const std::filesystem::path& sys = "/sys");

/// Owns anonymous memory bound to a NUMA node, or to none (any_node).
class HostPages {
 public:
  HostPages() = default;
  /// Reserves address space only, and reserved huge pages with it. Throws Error{memory} if none are left.
  HostPages(u32 node, u64 bytes, PageSize = {});
  ~HostPages();
  HostPages(HostPages&& other) noexcept;
  HostPages& operator=(HostPages&& other) noexcept;

  /// Backs every page, by one thread or by as many as there are CPUs; memory on any_node by the caller. Throws Error{memory} if the node has none left.
  void back(bool by_one_thread);
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] u64 size() const { return bytes_; }
  /// The actual pages as text: "2 MiB", "2 MiB in 60 of 64 MiB", "hidden". Throws Error{failed} if the kernel gave
  /// fewer huge pages than requested.
  [[nodiscard]] std::string check_size() const;

 private:
  std::byte *mapping_ = nullptr, *data_ = nullptr;  // transparent huge pages begin at a multiple of their size
  u64 mapped_ = 0, bytes_ = 0;
  u32 node_ = 0;
  PageSize page_;
};

/// The sampled placement of a range: "numa:0", "numa:0 3 of 64, numa:1 61 of 64", or "hidden" if the kernel does not
/// tell (driver memory, sandboxes).
[[nodiscard]] std::string page_nodes(const void* start, u64 bytes);

}  // namespace linkscope
