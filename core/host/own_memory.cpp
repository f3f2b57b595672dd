#include "host/own_memory.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "host/topology.hpp"

namespace linkscope {
namespace {

constexpr u64 huge_page = u64{2} << 20;

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

/// Moves one byte by a system call, which returns an error where a load or a store would end the process.
bool accepts(Transfer call, void* local, void* remote) {
  const iovec here{local, 1}, there{remote, 1};
  return call(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;  // sandboxes refuse the call with EPERM
}

bool is_on_one_page(const void* start, u64 bytes) {
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE)), first = reinterpret_cast<u64>(start);
  return first / page == (first + bytes - 1) / page;
}

/// Whether a range of at least one byte ends behind the last address, as one at a negative number does.
bool is_beyond_addresses(const void* start, u64 bytes) {
  const auto first = reinterpret_cast<u64>(start);
  return first + bytes <= first;
}

std::byte* last_byte(const void* start, u64 bytes) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(start)) + bytes - 1;
}

}  // namespace

bool can_read(const void* start, u64 bytes) {
  std::byte read{};
  const auto reads = [&](void* at) { return accepts(process_vm_readv, &read, at); };
  return bytes == 0 || (!is_beyond_addresses(start, bytes) && reads(const_cast<void*>(start)) &&
                        (is_on_one_page(start, bytes) || reads(last_byte(start, bytes))));
}

bool can_write(void* start, u64 bytes) {
  const auto itself = [](void* at) {
    std::byte kept{};
    return accepts(process_vm_readv, &kept, at) && accepts(process_vm_writev, &kept, at);
  };
  return bytes == 0 || (!is_beyond_addresses(start, bytes) && itself(start) &&
                        (is_on_one_page(start, bytes) || itself(last_byte(start, bytes))));
}

bool is_mapped(const void* start, u64 bytes) {
  constexpr u64 pages_of_call = 512;
  std::array<unsigned char, pages_of_call> backed{};
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE)), end = reinterpret_cast<u64>(start) + bytes;
  for (u64 at = reinterpret_cast<u64>(start) / page * page; at < end; at += pages_of_call * page)
    if (mincore(reinterpret_cast<void*>(at), std::min(end - at, pages_of_call * page), backed.data()) != 0)
      return false;
  return true;
}

bool is_untouched(const void* start, u64 bytes) {
  constexpr u64 samples = 16;
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE)), first = reinterpret_cast<u64>(start) / page * page,
             pages = (reinterpret_cast<u64>(start) + bytes - first + page - 1) / page;
  if (bytes == 0) return false;
  for (u64 i = 0; i < samples; ++i) {
    unsigned char backed = 1;
    if (mincore(reinterpret_cast<void*>(first + i * (pages - 1) / (samples - 1) * page), page, &backed) != 0 ||
        backed & 1)
      return false;
  }
  return true;
}

void request_huge_pages(void* start, u64 bytes) {
  const auto from = reinterpret_cast<u64>(start), first = (from + huge_page - 1) / huge_page * huge_page,
             end = (from + bytes) / huge_page * huge_page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

u64 host_memory_bytes() { return static_cast<u64>(sysconf(_SC_PHYS_PAGES)) * static_cast<u64>(sysconf(_SC_PAGESIZE)); }

u32 usable_cpus() {
  std::size_t count = 0;
  for (const auto& node : host_nodes()) count += node.cpus.size();
  return static_cast<u32>(std::max<std::size_t>(count ? count : std::thread::hardware_concurrency(), 1));
}

}  // namespace linkscope
