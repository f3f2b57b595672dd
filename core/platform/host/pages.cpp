#include "platform/host/pages.hpp"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "platform/host/parallel.hpp"
#include "platform/host/topology.hpp"

namespace linkscope {
namespace {

// The kernel's calls by number: libnuma is not everywhere and adds nothing here.
constexpr std::size_t mask_bits = 1024;
using NodeMask = std::array<unsigned long, mask_bits / (8 * sizeof(unsigned long))>;

NodeMask mask_of(u32 node) {
  NodeMask mask{};
  const auto index = static_cast<std::size_t>(host_nodes().at(node).os_index);
  mask[index / (8 * sizeof(unsigned long))] |= 1ul << (index % (8 * sizeof(unsigned long)));
  return mask;
}

// With one node there is nothing to choose, and sandboxes that show one often refuse the calls.
bool has_choice() { return host_nodes().size() > 1; }

}  // namespace

NodePolicy::NodePolicy(u32 node) {
  if (!has_choice()) return;
  const auto mask = mask_of(node);
  set_ = syscall(SYS_set_mempolicy, MPOL_BIND, mask.data(), mask_bits) == 0;
}

NodePolicy::~NodePolicy() {
  if (set_) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0);
}

HostPages::HostPages(u32 node, u64 bytes) : bytes_{bytes} {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED)
    throw Error{ErrorKind::memory, "no " + bytes_text(bytes) + " of host memory on numa:" + std::to_string(node) + ": " + std::strerror(errno)};
  data_ = static_cast<std::byte*>(start);
  // Plain pages: transparent huge pages come and go with the machine's luck; huge pages are a memory kind of their own.
  madvise(start, bytes, MADV_NOHUGEPAGE);
  if (has_choice()) {
    const auto mask = mask_of(node);
    syscall(SYS_mbind, start, bytes, MPOL_BIND, mask.data(), mask_bits, MPOL_MF_MOVE);
  }
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE));
  parallel_ranges(bytes, page, [&](u64 begin, u64 end) {
    for (u64 at = begin; at < end; at += page) static_cast<volatile std::byte*>(data_)[at] = std::byte{1};
  });
}

HostPages::~HostPages() {
  if (data_) munmap(data_, bytes_);
}

HostPages::HostPages(HostPages&& other) noexcept
    : data_{std::exchange(other.data_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}

HostPages& HostPages::operator=(HostPages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::string page_nodes(const void* start, u64 bytes) {
  constexpr u64 most = 64;
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE));
  const u64 pages = (bytes + page - 1) / page, count = std::min(pages, most);
  std::vector<void*> addresses(count);
  for (u64 i = 0; i < count; ++i)
    addresses[i] = const_cast<std::byte*>(static_cast<const std::byte*>(start)) + i * pages / count * page;
  std::vector<int> status(count, -1);
  if (syscall(SYS_move_pages, 0, count, addresses.data(), nullptr, status.data(), 0) != 0) return "hidden";
  std::map<int, u64> found;
  for (const int node : status)
    if (node >= 0) ++found[node];
  if (found.empty()) return "hidden";
  std::string text;
  for (const auto& [os_index, n] : found) {
    const auto& nodes = host_nodes();
    const auto dense = std::find_if(nodes.begin(), nodes.end(), [&](const HostNode& node) { return node.os_index == os_index; });
    text += (text.empty() ? "" : ", ") + std::string{"numa:"} + std::to_string(dense - nodes.begin());
    if (found.size() > 1) text += " " + std::to_string(n) + " of " + std::to_string(count);
  }
  return text;
}

}  // namespace linkscope
