#include "program/kernels.hpp"

#include <array>

namespace linkscope {
namespace {

constexpr auto kernel_table = std::to_array<KernelTraits>({
    {.id = KernelId::read,
     .name = "read",
     .module = "access",
     .accesses = 1,
     .proof = Proof::sum,
     .all_bytes = true,
     .as_op = true},
    {.id = KernelId::write,
     .name = "write",
     .module = "access",
     .accesses = 1,
     .proof = Proof::contents,
     .all_bytes = true,
     .as_op = true},
    {.id = KernelId::exchange,
     .name = "exchange",
     .module = "copy",
     .accesses = 4,
     .proof = Proof::contents,
     .in_pairs = true},
    {.id = KernelId::add,
     .name = "add",
     .module = "atomics",
     .accesses = 1,
     .proof = Proof::additions,
     .by_cpu_thread = true,
     .atomic = true},
    {.id = KernelId::add_chain,
     .name = "add_chain",
     .module = "atomics",
     .accesses = 1,
     .proof = Proof::additions,
     .atomic = true},
    {.id = KernelId::chase,
     .name = "chase",
     .module = "access",
     .accesses = 1,
     .proof = Proof::position,
     .by_cpu_thread = true,
     .follows_chain = true,
     .on_chosen_sm = true},
    {.id = KernelId::touch,
     .name = "touch",
     .module = "managed",
     .accesses = 1,
     .proof = Proof::sum,
     .by_cpu_thread = true,
     .touches_pages = true},
    {.id = KernelId::touch_chain,
     .name = "touch_chain",
     .module = "access",
     .accesses = 1,
     .proof = Proof::position,
     .by_cpu_thread = true,
     .follows_chain = true,
     .touches_pages = true},
});

/// Row i describes kernel i, so an identity is the index of its row. Every row states traffic: without it the
/// simulation could not run the kernel, and no platform could verify it.
constexpr bool rows_complete() {
  for (std::size_t i = 0; i < kernel_table.size(); ++i)
    if (kernel_table[i].id != static_cast<KernelId>(i) || kernel_table[i].accesses == 0) return false;
  return true;
}
static_assert(rows_complete() && kernel_table.size() == static_cast<std::size_t>(KernelId::touch_chain) + 1);

}  // namespace

std::span<const KernelTraits> kernels() { return kernel_table; }

const KernelTraits& traits_of(KernelId id) { return kernel_table[static_cast<std::size_t>(id)]; }

const char* to_string(KernelId id) { return traits_of(id).name; }

}  // namespace linkscope
