// Programs of several processes: the part that each process runs. Every process prepares the whole program, allocates the
// regions of its own, opens those of others that its actors use, and runs its own actors.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "program/platform.hpp"

namespace linkscope {

/// The number of processes, which are numbered from 0.
[[nodiscard]] u32 processes_of(const Program&);

/// Whether the processes meet before and after each sample: several of them act, or one prepares memory for the calls of
/// another. Otherwise one process acts alone, with memory of the others.
[[nodiscard]] bool in_lockstep(const Program&);
/// Whether a process takes part in samples.
[[nodiscard]] bool acts(const Program&, u32 process);

/// The process that fills and resets a region: the first that uses it, otherwise the one that allocates it.
[[nodiscard]] u32 filler_of(const Program&, u32 region);

/// A process, and optionally one of its GPUs, that opens memory of another process. A GPU opens memory behind an IPC handle
/// for itself in addition to the GPU that has it.
struct Opening {
  u32 region = 0, process = 0;
  std::optional<u32> gpu{};
};
/// All of them, in the same order in every process. The openings of a region begin with that of the process alone.
[[nodiscard]] std::vector<Opening> openings(const Program&);
/// The openings as text: programs with equal texts can be prepared, or cannot, for the same reasons.
[[nodiscard]] std::string openings_text(const Program&);

/// The program with one process's actors only. Regions keep their numbers.
[[nodiscard]] Program part_of(const Program&, u32 process);
/// The order with the counts of one process's actors only.
[[nodiscard]] Order part_of(const Program&, const Order&, u32 process);
/// The trace of one process's part with room for all actors; the stamps of the others' actors are zero.
[[nodiscard]] Trace among_all(const Program&, Trace, u32 process);

}  // namespace linkscope
