#include "program/memory_kinds.hpp"

#include <array>
#include <string>

#include "base/error.hpp"

namespace linkscope {
namespace {

namespace phases {
using Names = std::string_view;
constexpr std::array<Names, 3> plain{"allocate", "touch", "free"};
constexpr std::array<Names, 4> driver_made{"allocate", "map", "touch", "free"};
constexpr std::array<Names, 6> registered{"allocate", "touch", "register", "map", "unregister", "free"};
constexpr std::array<Names, 5> by_vmm{"allocate", "map", "touch", "unmap", "free"};
constexpr std::array<Names, 6> by_handle{"allocate", "export", "open", "touch", "close", "free"};
constexpr std::array<Names, 7> by_descriptor{"allocate", "export", "import", "map", "touch", "unmap", "free"};
constexpr std::array<Names, 8> by_name{"allocate", "touch", "open", "register", "map", "unregister", "close", "free"};
}  // namespace phases

constexpr auto memory_kind_table = std::to_array<MemKindTraits>({
    {.kind = MemKind::pageable, .name = "pageable", .holder = Holder::host, .phases = phases::plain, .pageable = true},
    {.kind = MemKind::pinned,
     .name = "pinned",
     .holder = Holder::host,
     .phases = phases::driver_made,
     .by_driver = true},
    {.kind = MemKind::registered,
     .name = "registered",
     .holder = Holder::host,
     .phases = phases::registered,
     .registered = true},
    {.kind = MemKind::wc, .name = "wc", .holder = Holder::host, .phases = phases::driver_made, .by_driver = true},
    {.kind = MemKind::mapped,
     .name = "mapped",
     .holder = Holder::host,
     .phases = phases::driver_made,
     .by_driver = true},
    {.kind = MemKind::managed, .name = "managed", .holder = Holder::either, .pages_move = true},
    {.kind = MemKind::device, .name = "device", .holder = Holder::gpu, .phases = phases::plain},
    {.kind = MemKind::vmm,
     .name = "vmm",
     .holder = Holder::gpu,
     .phases = phases::by_vmm,
     .by_vmm = true,
     .granted_to_peers = true},
    {.kind = MemKind::pool, .name = "pool", .holder = Holder::gpu, .phases = phases::plain, .granted_to_peers = true},
    {.kind = MemKind::hugepage,
     .name = "hugepage",
     .holder = Holder::host,
     .phases = phases::plain,
     .pageable = true,
     .huge_pages = true},
    {.kind = MemKind::file, .name = "file", .holder = Holder::disk},
    {.kind = MemKind::system, .name = "system", .holder = Holder::either, .pages_move = true},
    {.kind = MemKind::registered_hugepage,
     .name = "registered_hugepage",
     .holder = Holder::host,
     .phases = phases::registered,
     .huge_pages = true,
     .registered = true},
    {.kind = MemKind::ipc, .name = "ipc", .holder = Holder::gpu, .phases = phases::by_handle, .shared = true},
    {.kind = MemKind::posix_fd,
     .name = "posix_fd",
     .holder = Holder::gpu,
     .phases = phases::by_descriptor,
     .shared = true,
     .by_vmm = true,
     .granted_to_peers = true},
    {.kind = MemKind::shm,
     .name = "shm",
     .holder = Holder::host,
     .phases = phases::by_name,
     .shared = true,
     .registered = true},
});

/// Row i describes kind i, so a kind is the index of its row.
constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < memory_kind_table.size(); ++i)
    if (memory_kind_table[i].kind != static_cast<MemKind>(i)) return false;
  return true;
}
static_assert(rows_in_order() && memory_kind_table.size() == static_cast<std::size_t>(MemKind::shm) + 1);

}  // namespace

std::span<const MemKindTraits> mem_kinds() { return memory_kind_table; }

const MemKindTraits& traits_of(MemKind kind) { return memory_kind_table[static_cast<std::size_t>(kind)]; }

const char* to_string(MemKind kind) { return traits_of(kind).name; }

MemKind parse_mem_kind(std::string_view text) {
  std::string known;
  for (const auto& row : memory_kind_table) {
    if (text == row.name) return row.kind;
    known += std::string{known.empty() ? "" : ", "} + row.name;
  }
  throw Error{ErrorKind::usage, "'" + std::string{text} + "' is not a memory kind; there are " + known};
}

}  // namespace linkscope
