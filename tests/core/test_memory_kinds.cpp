// The table of memory kinds: one row for each kind, and traits that agree with each other.
#include <doctest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "program/allocation.hpp"
#include "program/memory_kinds.hpp"

using namespace linkscope;

namespace {

using Names = std::set<std::string>;

/// The names of all kinds with a trait.
template <class Trait>
Names kinds_with(Trait trait) {
  Names names;
  for (const auto& row : mem_kinds())
    if (trait(row)) names.insert(row.name);
  return names;
}

}  // namespace

TEST_CASE("each memory kind has one row, and its name leads back to it") {
  std::set<MemKind> kinds;
  Names names;
  for (const auto& row : mem_kinds()) {
    kinds.insert(row.kind);
    names.insert(row.name);
    CHECK(&traits_of(row.kind) == &row);
    CHECK(to_string(row.kind) == row.name);
    CHECK(parse_mem_kind(row.name) == row.kind);
  }
  CHECK(kinds.size() == mem_kinds().size());
  CHECK(names.size() == mem_kinds().size());
  CHECK(mem_kinds().size() == 16);
}

TEST_CASE("an unknown memory kind is refused with the names of all kinds") {
  CHECK_THROWS_WITH_AS((void)parse_mem_kind("paged"),
                       "'paged' is not a memory kind; there are pageable, pinned, registered, wc, mapped, managed, "
                       "device, vmm, pool, hugepage, file, system, registered_hugepage, ipc, posix_fd, shm",
                       Error);
}

TEST_CASE("each trait holds for the memory kinds that it describes") {
  using Row = MemKindTraits;
  CHECK(kinds_with([](const Row& row) { return row.pages_move; }) == Names{"managed", "system"});
  CHECK(kinds_with([](const Row& row) { return row.pageable; }) == Names{"pageable", "hugepage"});
  CHECK(kinds_with([](const Row& row) { return row.shared; }) == Names{"ipc", "posix_fd", "shm"});
  CHECK(kinds_with([](const Row& row) { return row.huge_pages; }) == Names{"hugepage", "registered_hugepage"});
  CHECK(kinds_with([](const Row& row) { return row.by_driver; }) == Names{"pinned", "wc", "mapped"});
  CHECK(kinds_with([](const Row& row) { return row.registered; }) == Names{"registered", "registered_hugepage", "shm"});
  CHECK(kinds_with([](const Row& row) { return row.by_vmm; }) == Names{"vmm", "posix_fd"});
  CHECK(kinds_with([](const Row& row) { return row.granted_to_peers; }) == Names{"vmm", "pool", "posix_fd"});
  CHECK(kinds_with([](const Row& row) { return row.holder == Holder::gpu; }) ==
        Names{"device", "vmm", "pool", "ipc", "posix_fd"});
  CHECK(kinds_with([](const Row& row) { return row.holder == Holder::either; }) == Names{"managed", "system"});
  CHECK(kinds_with([](const Row& row) { return row.holder == Holder::disk; }) == Names{"file"});
}

TEST_CASE("a short question about a memory kind has the answer of its row") {
  for (const auto& row : mem_kinds()) {
    CHECK(pages_move(row.kind) == row.pages_move);
    CHECK(is_pageable(row.kind) == row.pageable);
    CHECK(is_shared(row.kind) == row.shared);
    CHECK(is_gpu_memory(row.kind) == (row.holder == Holder::gpu));
  }
}

TEST_CASE("the phases of a memory kind begin with its allocation, end with its release, and follow its traits") {
  for (const auto& row : mem_kinds()) {
    CAPTURE(row.name);
    const auto phases = phases_of(row.kind);
    const Names known{phases.begin(), phases.end()};
    CHECK(known.size() == phases.size());
    CHECK(phases.empty() == (row.pages_move || row.holder == Holder::disk));
    CHECK(known.contains("register") == row.registered);
    CHECK(known.contains("unregister") == row.registered);
    CHECK(known.contains("unmap") == row.by_vmm);
    if (phases.empty()) continue;
    CHECK(phases.front() == "allocate");
    CHECK(phases.back() == "free");
    CHECK(known.contains("touch"));
    CHECK(known.contains("export") == (row.shared && row.holder == Holder::gpu));
    for (std::size_t i = 0; i < phases.size(); ++i) CHECK(phase_index(row.kind, phases[i]) == i);
  }
}
