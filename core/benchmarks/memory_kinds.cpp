// The copies and accesses of other files on other kinds of memory: write-combined, mapped, huge pages, pools, virtual
// memory management, and memory of another process (Comm|Scope 3.3: CS-5; CUDA driver API). Pinned memory here is
// portable, so that every context can use it.
#include <algorithm>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using Memories = std::vector<std::pair<MemKind, MemKind>>;

/// The same operation with other memory; its ends keep their order. Suites select such a row only by the name of its
/// memory, because rows of plain memory cover everything else.
Benchmark with(Benchmark row, const Memories& memories, const char* source) {
  row.memories = memories;
  row.source = source;
  row.taken = Taken::by_memory;
  std::erase_if(row.params, [](const Param& param) {
    return param.name == "peer" || param.name == "call" || param.name == "cache";
  });
  return row;
}

Memories facing(const std::vector<MemKind>& host, bool from_host) {
  Memories pairs;
  for (const MemKind kind : host)
    pairs.emplace_back(from_host ? std::pair{kind, MemKind::device} : std::pair{MemKind::device, kind});
  return pairs;
}

}  // namespace

std::vector<Benchmark> memory_kinds() {
  using enum MemKind;
  constexpr const char *kinds = "CUDA driver API: flags of cuMemHostAlloc, pools, virtual memory",
                       *huge_pages = "Linux: hugetlbpage and transparent huge pages";
  constexpr const char* shared =
      "CUDA driver API: IPC handles, handles of virtual memory that are POSIX file descriptors";
  constexpr const char* zero_copy =
      "Comm|Scope 3.3 (CS-5), CUDA driver API: flags of cuMemHostAlloc, pools, virtual memory";
  std::vector<Benchmark> originals{host_to_device, device_to_host, device_to_device, device_local};
  for (auto* more : {kernel_copies, kernel_accesses})
    for (const auto& row : more())
      if (row.engine == Engine::sm) originals.push_back(row);
  std::vector<Benchmark> rows{
      with(host_to_host, {{pageable, wc}, {wc, pageable}, {pageable, mapped}, {mapped, pageable}}, kinds)};
  const auto add_huge = [&](Benchmark row, const Memories& memories) {
    row = with(std::move(row), memories, huge_pages);
    row.params.push_back(pages_param());
    rows.push_back(std::move(row));
  };
  add_huge(host_to_host, {{hugepage, hugepage}});
  for (const auto& row : originals) {
    const bool from_host = row.src == PlaceKind::numa, by_engine = row.engine == Engine::ce;
    if (!from_host && row.dst == PlaceKind::gpu) {
      rows.push_back(with(row, {{pool, pool}, {vmm, vmm}}, kinds));
      rows.push_back(with(row, {{ipc, ipc}, {posix_fd, posix_fd}}, shared));
      continue;
    }
    auto memories = facing({wc, mapped}, from_host);
    for (const MemKind kind : {pool, vmm})
      memories.push_back(from_host ? std::pair{pinned, kind} : std::pair{kind, pinned});
    rows.push_back(with(row, memories, row.role == Role::access ? zero_copy : kinds));
    memories = facing({shm}, from_host);
    for (const MemKind kind : {ipc, posix_fd})
      memories.push_back(from_host ? std::pair{pinned, kind} : std::pair{kind, pinned});
    rows.push_back(with(row, memories, shared));
    add_huge(row, facing(by_engine ? std::vector{hugepage, registered_hugepage} : std::vector{registered_hugepage},
                         from_host));
  }
  return rows;
}

}  // namespace linkscope
