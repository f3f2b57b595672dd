// How moves are made on this machine: by single calls, by one call or one graph for a whole batch, by kernels.
#pragma once
#include <string>
#include <vector>

#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why this driver cannot make the move, as far as calls and shapes go; "" where it can.
[[nodiscard]] std::string why_no_call(const Driver&, const Program&, const Move&);
/// The kernel that makes the move; null where none does.
[[nodiscard]] CUfunction copy_code(Device&, const Move&);
/// The move whose copies go by one call or one graph for the whole batch, where the loop is that; otherwise null.
[[nodiscard]] const Move* made_together(const Actor&);
/// Makes what a batch needs before it is queued, outside the timing: the list of its copies, or a graph, which is made once
/// for each batch and then told of the slices whose turn it is.
void prepare_together(const CudaSession&, ActorState&, u32 count);
/// Queues one iteration of a move (streams) or does it (CPU threads).
void queue_move(const CudaSession&, ActorState&, const Move&);
/// Queues a whole batch, for which everything was prepared.
void queue_together(const CudaSession&, ActorState&, const Move&, u32 count);

}  // namespace linkscope
