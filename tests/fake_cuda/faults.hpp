// Injects faults. Every call enters here, and every copy is counted here.
#pragma once
#include <cuda.h>

#include <string>

namespace fake {

/// The start of a call: counts it, hangs, ends the process or waits by setting, and returns the sticky error, if any.
[[nodiscard]] CUresult enter(const char* symbol);

/// Records a use of what has ended, where a real driver may crash: the call may still return an error. Tests read the
/// number (control.hpp) or the log.
void note_misuse(const std::string& what);

/// Makes every later call fail with this error.
void lose(CUresult error);
/// CUDA_SUCCESS or the sticky error. Calls that wait return it, because the error may occur while they wait.
[[nodiscard]] CUresult lost();

void set_initialized();
[[nodiscard]] bool initialized();

enum class Delivers { all, one_wrong_byte, one_byte_more, nothing };
/// Counts a copy by an engine or a kernel before it is made, and waits for the minimum time of a copy.
[[nodiscard]] Delivers begin_copy();
/// Counts a copy after it was made. The GPU may be lost from here.
void end_copy();

}  // namespace fake
