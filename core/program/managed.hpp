// Limits of a program's managed memory. It must stay far below the free memory of a GPU: pages that do not fit are
// moved out again, which delays other users of a shared machine.
#pragma once
#include <string>

#include "program/program.hpp"

namespace linkscope {

inline constexpr u64 most_managed = u64{1} << 30;

/// Bytes of all managed regions.
[[nodiscard]] u64 managed_bytes(const Program&);

/// "" or why the program's managed memory is too large for `gpu`, which has `bytes` free (or in total, if unknown): at
/// most 1 GiB and a tenth of that.
[[nodiscard]] std::string why_no_managed(const Program&, const Place& gpu, u64 free_bytes);

}  // namespace linkscope
