// Time limits on machines that stop processes for seconds.
#pragma once
#include "base/units.hpp"

namespace linkscope {

/// Returns a limit times the number in the variable LINKSCOPE_PATIENCE; the limit itself without the variable. For limits
/// that end a wait for another thread, process or GPU: a hypervisor or a debugger may stop any of them.
/// Throws Error of kind `usage` for a text that is not a number above zero.
[[nodiscard]] Seconds patient(Seconds limit);

}  // namespace linkscope
