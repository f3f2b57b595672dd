// The driver's allocations. "Device memory" is host memory and a device pointer is its address, so addressing is
// unified.
#pragma once
#include <cuda.h>

#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace fake {

constexpr int on_host = -1;
constexpr unsigned long long managed_page = 4096;

/// The advice for managed memory: its preferred place, and the GPUs that access it in any place.
struct Advised {
  bool mostly_read = false;
  std::optional<int> preferred;
  std::set<int> accessed_by;
  [[nodiscard]] bool stays_for(int device) const {
    return accessed_by.contains(device) || (preferred && *preferred != device);
  }
};

struct Allocation {
  enum class Kind { device, host, registered, managed, granted, opened } kind = Kind::device;
  unsigned long long base = 0, bytes = 0;
  CUdevice device = 0;  // kinds device, granted and opened (by another process): the GPU that owns it
  std::shared_ptr<std::vector<int>> where = nullptr;  // kind managed: the GPU that has each page, or on_host
  std::shared_ptr<Advised> advised = nullptr;
  std::shared_ptr<std::set<int>> granted = nullptr;  // kind granted: GPUs with access, peers or not
  [[nodiscard]] bool of_gpu() const { return kind == Kind::device || kind == Kind::opened; }
  int descriptor = -1;        // kind device: of the file that holds it
  CUdevice by = 0;            // kind opened: the only GPU for which it is mapped
  bool is_read_only = false;  // kind registered: a GPU that writes is lost
};

[[nodiscard]] inline unsigned long long address_of(const void* pointer) {
  return reinterpret_cast<unsigned long long>(pointer);
}

/// The allocation that contains [address, address + bytes). Nothing for pageable memory and for invalid addresses.
[[nodiscard]] std::optional<Allocation> find(unsigned long long address, unsigned long long bytes);
[[nodiscard]] inline std::optional<Allocation> find(const void* address, unsigned long long bytes) {
  return find(reinterpret_cast<unsigned long long>(address), bytes);
}
/// True for memory of a GPU that was freed, unless its addresses are in use again.
[[nodiscard]] bool was_freed(unsigned long long address);
/// True if a kernel of this context may touch the range. Managed pages of the range move to its GPU.
[[nodiscard]] bool reachable(CUcontext, const void* address, unsigned long long bytes);
/// Moves managed pages of the range to a GPU or to the host. Returns the number of bytes that were elsewhere.
unsigned long long move_pages(const Allocation&, unsigned long long address, unsigned long long bytes, int to);
[[nodiscard]] unsigned long long allocated_on(CUdevice);
/// The part of it that pools and cuMemCreate hold (granted.cpp).
[[nodiscard]] unsigned long long granted_on(CUdevice);

/// Reserves address space. Pages are backed at first touch, so a GPU may have more memory than this machine.
[[nodiscard]] void* map_pages(size_t bytes, int flags);
void remember(const Allocation&);
/// Removes and returns the allocation of this kind that begins at `base`; nothing if there is none.
std::optional<Allocation> forget(unsigned long long base, Allocation::Kind);

}  // namespace fake
