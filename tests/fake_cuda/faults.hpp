// What goes wrong, and when: every call enters here, every copy is counted here.
#pragma once
#include <cuda.h>

namespace fake {

/// At the start of a call: counts it, hangs or dawdles in it if that is wanted, and gives the error that sticks, if any.
[[nodiscard]] CUresult enter(const char* symbol);

/// From now on every call fails with this.
void lose(CUresult error);
/// CUDA_SUCCESS, or what every call fails with. Calls that wait return it: what broke meanwhile is their answer.
[[nodiscard]] CUresult lost();

void set_initialized();
[[nodiscard]] bool initialized();

enum class Delivers { all, one_wrong_byte, one_byte_more, nothing };
/// Counts a copy, by an engine or a kernel, that is about to be made, and takes the time that each takes at least.
[[nodiscard]] Delivers begin_copy();
/// The copy is made; the GPU may be lost now.
void end_copy();

}  // namespace fake
