// Runs ring work with the threads and slots that a method may have.
#pragma once
#include <string>

#include "base/error.hpp"
#include "transfer/methods.hpp"
#include "transfer/ring.hpp"

namespace linkscope {

/// Whether the driver has the calls that guard slots.
[[nodiscard]] bool can_ring(const Resources&);

/// Throws Error{memory} if the arena has fewer than two slots for two chunks.
void run_ring(const Resources&, const CopyLane&, const RingWork&, const Knobs&, Towards, Progress&);

/// Calls staged(). If there is no pinned memory for it, notes that under `name` and calls plain(), which does all of the
/// work anew.
template <class Staged, class Plain>
void staged_or_plain(const Resources& with, const std::string& name, Progress& progress, Staged staged, Plain plain) {
  const u64 before = progress.done;
  try {
    return staged();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    with.fallbacks.note(name + ": " + error.what());
  }
  progress.done = before;
  plain();
}

}  // namespace linkscope
