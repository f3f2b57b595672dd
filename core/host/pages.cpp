#include "host/pages.hpp"

#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "host/parallel.hpp"
#include "host/topology.hpp"

namespace linkscope {
namespace {

// System calls by number: libnuma is not everywhere and adds nothing here.
constexpr std::size_t mask_bits = 1024;
using NodeMask = std::array<unsigned long, mask_bits / (8 * sizeof(unsigned long))>;

NodeMask mask_of(u32 node) {
  NodeMask mask{};
  const auto index = static_cast<std::size_t>(host_nodes().at(node).os_index);
  mask[index / (8 * sizeof(unsigned long))] |= 1ul << (index % (8 * sizeof(unsigned long)));
  return mask;
}

// With one node there is nothing to choose, and sandboxes with one node often refuse the calls.
bool has_choice() { return host_nodes().size() > 1; }

std::string node_text(u32 node) { return node == any_node ? "any NUMA node" : "numa:" + std::to_string(node); }

}  // namespace

NodePolicy::NodePolicy(u32 node) {
  if (!has_choice() || node == any_node) return;
  const auto mask = mask_of(node);
  set_ = syscall(SYS_set_mempolicy, MPOL_BIND, mask.data(), mask_bits) == 0;
}

NodePolicy::~NodePolicy() {
  if (set_) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0);
}

void bind_to_node(void* start, u64 bytes, u32 node) {
  if (!has_choice() || node == any_node) return;
  const auto mask = mask_of(node);
  syscall(SYS_mbind, start, bytes, MPOL_BIND, mask.data(), mask_bits, MPOL_MF_MOVE);
}

std::string why_no_pages(u32 node, u64 bytes, PageSize page, const std::filesystem::path& sys) {
  const auto line = [](const std::filesystem::path& file) {
    std::ifstream in{file};
    std::string text;
    std::getline(in, text);
    return text;
  };
  if (page.transparent) {
    const auto chosen = line(sys / "kernel/mm/transparent_hugepage/enabled");
    if (chosen.empty()) return "this kernel has no transparent huge pages, or does not show them";
    if (chosen.find("[never]") == std::string::npos) return "";
    return "transparent huge pages are off; an administrator turns them on for programs that request them: echo "
           "madvise > "
           "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  if (page.bytes == 0) return "";
  const auto folder = "hugepages-" + std::to_string(page.bytes >> 10) + "kB";
  if (!std::filesystem::exists(sys / "kernel/mm/hugepages" / folder))
    return "this kernel has no huge pages of " + bytes_text(page.bytes) + ", or does not show them";
  const auto of_node = sys / "devices/system/node" / ("node" + std::to_string(host_nodes().at(node).os_index)) /
                       "hugepages" / folder / "nr_hugepages";
  const auto file = std::filesystem::exists(of_node) ? of_node : sys / "kernel/mm/hugepages" / folder / "nr_hugepages";
  const u64 needed = (bytes + page.bytes - 1) / page.bytes;
  const auto text = line(file);
  const u64 reserved = text.empty() ? 0 : std::stoull(text);
  if (reserved >= needed) return "";
  return std::to_string(reserved) + " huge pages of " + bytes_text(page.bytes) +
         " are reserved on numa:" + std::to_string(node) + ", and " + std::to_string(needed) +
         " are needed; an administrator can reserve them: echo " + std::to_string(needed) + " > " + file.string() +
         (page.bytes >= u64{1} << 30
              ? ", or at boot, before memory is fragmented: hugepagesz=1G hugepages=" + std::to_string(needed)
              : "");
}

HostPages::HostPages(u32 node, u64 bytes, PageSize page) : bytes_{bytes}, node_{node}, page_{page} {
  const bool reserved = page.bytes && !page.transparent;
  mapped_ = reserved           ? (bytes + page.bytes - 1) / page.bytes * page.bytes
            : page.transparent ? bytes + page.bytes
                               : bytes;
  const int size = reserved ? MAP_HUGETLB | std::countr_zero(page.bytes) << MAP_HUGE_SHIFT : 0;
  void* start = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | size, -1, 0);
  if (start == MAP_FAILED)
    throw Error{ErrorKind::memory, "no " + bytes_text(bytes) + " of host memory" +
                                       (reserved ? " in huge pages of " + bytes_text(page.bytes) : "") + " on " +
                                       node_text(node) + ": " + std::strerror(errno) +
                                       (reserved ? "; other processes hold the reserved pages: reserve more"
                                                 : "; free memory there, or choose smaller sizes (--sizes)")};
  data_ = mapping_ = static_cast<std::byte*>(start);
  if (page.transparent) data_ += (page.bytes - reinterpret_cast<u64>(start) % page.bytes) % page.bytes;
  // Plain pages: transparent huge pages depend on the state of the machine, and huge pages are a memory kind of their
  // own.
  if (!reserved) madvise(data_, bytes, page.transparent ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  bind_to_node(data_, reserved ? mapped_ : bytes, node);
}

void HostPages::back(bool by_one_thread) {
  const u64 page = page_.bytes && !page_.transparent ? page_.bytes : static_cast<u64>(sysconf(_SC_PAGESIZE));
#ifdef MADV_POPULATE_WRITE
  // Touching a page on a node without free huge pages would end the process; this call returns an error instead.
  if (page_.bytes && !page_.transparent && madvise(data_, mapped_, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
    throw Error{ErrorKind::memory, node_text(node_) + " has no huge pages of " + bytes_text(page_.bytes) +
                                       " left for " + bytes_text(bytes_) + " (" + std::strerror(errno) +
                                       "); reserve more there"};
#endif
  const auto touch = [&](u64 begin, u64 end) {
    for (u64 at = begin; at < end; at += page) static_cast<volatile std::byte*>(data_)[at] = std::byte{1};
  };
  if (by_one_thread || node_ == any_node) touch(0, bytes_);
  else parallel_ranges(bytes_, page, touch);
}

namespace {

/// "AnonHugePages:      2048 kB" of the mapping that holds an address; none if the kernel hides it.
std::optional<u64> from_smaps(const std::byte* address, std::string_view field) {
  std::ifstream smaps{"/proc/self/smaps"};
  const auto wanted = reinterpret_cast<u64>(address);
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    u64 begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &begin, &end) == 2 && line.find('-') < line.find(' '))
      here = begin <= wanted && wanted < end;
    else if (here && line.starts_with(field)) return std::stoull(line.substr(field.size())) << 10;
  }
  return {};
}

}  // namespace

std::string HostPages::check_size() const {
  const auto found = from_smaps(data_, page_.transparent ? "AnonHugePages:" : "KernelPageSize:");
  if (!found) return "hidden";
  if (!page_.transparent) {
    if (page_.bytes && *found != page_.bytes)
      throw Error{ErrorKind::failed,
                  "pages of " + bytes_text(page_.bytes) + " were requested, but the pages have " + bytes_text(*found)};
    return bytes_text(*found);
  }
  const u64 possible = bytes_ / page_.bytes * page_.bytes;
  const auto words = bytes_text(page_.bytes) + " in " + bytes_text(*found) + " of " + bytes_text(bytes_);
  if (*found < possible)
    throw Error{ErrorKind::failed, "transparent huge pages were requested, but the kernel gave " + words +
                                       ": memory is fragmented, or the defrag setting does not let the kernel wait"};
  return words;
}

HostPages::~HostPages() {
  if (mapping_) munmap(mapping_, mapped_);
}

HostPages::HostPages(HostPages&& other) noexcept { *this = std::move(other); }

HostPages& HostPages::operator=(HostPages&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(data_, other.data_);
  std::swap(mapped_, other.mapped_);
  std::swap(bytes_, other.bytes_);
  std::swap(node_, other.node_);
  std::swap(page_, other.page_);
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
    const auto dense =
        std::find_if(nodes.begin(), nodes.end(), [&](const HostNode& node) { return node.os_index == os_index; });
    text += text.empty() ? "" : ", ";
    text += std::string{"numa:"} + std::to_string(dense - nodes.begin());
    if (found.size() > 1) text += std::string{" "} + std::to_string(n) + " of " + std::to_string(count);
  }
  return text;
}

}  // namespace linkscope
