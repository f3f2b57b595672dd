// Moves on this machine: by single calls, by one call or one graph for a whole batch, by kernels.
#pragma once
#include <string>
#include <vector>

#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why this driver cannot make the move, as far as calls and shapes matter; "" if it can.
[[nodiscard]] std::string why_no_call(const Driver&, const Program&, const Move&);
/// Blocks of a launch: as the shape states, or one on each multiprocessor.
[[nodiscard]] unsigned blocks_of(const Device&, const Shape&);
/// The kernel that makes the move, or null.
[[nodiscard]] CUfunction copy_code(Device&, const Move&);
/// The move whose copies go by one call or one graph for the whole batch, if the loop is such a move; otherwise null.
[[nodiscard]] const Move* made_together(const Actor&);
/// Untimed: prepares a batch before it is queued: the list of its copies, or a graph, which is made once per batch and
/// then updated with the current slices.
void prepare_together(const CudaSession&, ActorState&, u32 count);
/// Queues one iteration of a move (streams) or does it (CPU threads). `code` is its kernel, or null.
void queue_move(const CudaSession&, ActorState&, const Move&, CUfunction code);
/// Queues a whole prepared batch.
void queue_together(const CudaSession&, ActorState&, const Move&, u32 count);

}  // namespace linkscope
