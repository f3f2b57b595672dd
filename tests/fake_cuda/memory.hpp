// Memory as the driver knows it. "Device memory" is host memory, and a device pointer is its address, so that unified
// addressing holds by itself.
#pragma once
#include <cuda.h>

#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace fake {

constexpr int on_host = -1;
constexpr unsigned long long managed_page = 4096;

/// What was said of managed memory: where it is best kept, and which GPUs access it wherever it is.
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
  CUdevice device = 0;  // kinds device, granted and opened (of another process): whose memory it is
  std::shared_ptr<std::vector<int>> where = nullptr;  // kind managed: of each page, the GPU that has it, or on_host
  std::shared_ptr<Advised> advised = nullptr;
  std::shared_ptr<std::set<int>> granted = nullptr;  // kind granted: the GPUs that may touch it, peers or not
  [[nodiscard]] bool of_gpu() const { return kind == Kind::device || kind == Kind::opened; }
  int descriptor = -1;  // kind device: of the file in which it lies
  CUdevice by = 0;      // kind opened: for whom it is mapped, and for no other
};

/// The allocation that holds all of [address, address + bytes), or nothing: pageable memory, or a mistake.
[[nodiscard]] std::optional<Allocation> find(unsigned long long address, unsigned long long bytes);
[[nodiscard]] inline std::optional<Allocation> find(const void* address, unsigned long long bytes) {
  return find(reinterpret_cast<unsigned long long>(address), bytes);
}
/// True when a kernel of this context may touch the range; managed pages of it come.
[[nodiscard]] bool reachable(CUcontext, const void* address, unsigned long long bytes);
/// Managed pages of the range go to a GPU or to the host; gives how many bytes were elsewhere.
unsigned long long move_pages(const Allocation&, unsigned long long address, unsigned long long bytes, int to);
[[nodiscard]] unsigned long long allocated_on(CUdevice);
/// Of it, what pools and cuMemCreate have (granted.cpp).
[[nodiscard]] unsigned long long granted_on(CUdevice);

/// Address space only: pages come when they are touched, so that a GPU may have more memory than this machine.
[[nodiscard]] void* map_pages(size_t bytes, int flags);
void remember(const Allocation&);
/// Takes the allocation of a kind that begins here out of the books; nothing if there is none.
std::optional<Allocation> forget(unsigned long long base, Allocation::Kind);

}  // namespace fake
