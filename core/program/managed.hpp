// How much managed memory a program may have. It is taken in small amounts only, far below what a GPU has free: pages that
// do not fit are moved out again, and others on a shared machine would wait for that.
#pragma once
#include <string>

#include "program/program.hpp"

namespace linkscope {

inline constexpr u64 most_managed = u64{1} << 30;

/// Bytes of all managed regions.
[[nodiscard]] u64 managed_bytes(const Program&);

/// "" or why the program's managed memory is too much for `gpu`, which has so many bytes free (or in all, where that is
/// not known): at most 1 GiB and a tenth of that.
[[nodiscard]] std::string why_no_managed(const Program&, const Place& gpu, u64 free_bytes);

}  // namespace linkscope
