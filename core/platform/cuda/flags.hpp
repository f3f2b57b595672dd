// Ops of actors that wait (base/actor_ops.hpp) on this machine: words that one side sets and the other polls, and what
// moves between them.
#pragma once
#include <span>

#include "host/words.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

class Checks;

/// Why an actor cannot perform the ops of its loop here, besides its managed memory; "" if it can.
[[nodiscard]] std::string why_no_ops(const Program&, const Actor&);

/// Of blocks; of those that copy by TMA.
[[nodiscard]] CUfunction block_code(Device&, bool tma = false);
/// Of blocks that stamp their iterations.
[[nodiscard]] CUfunction stamped_block_code(Device&, bool tma);
/// The ops of a set that posts a descriptor and of a wait that takes one. `start`: the address of the first slot.
[[nodiscard]] ActorOp post_op(const Set&, Word start);
[[nodiscard]] ActorOp take_op(const Wait&, Word start);

/// Builds the table of an actor's ops, when all memory has its address.
void prepare_ops(const CudaSession&, ActorState&);
/// Gathers the blocks of each kernel, when all actors have their tables and results.
void prepare_grids(CudaSession&);
/// Frees what that allocated.
void free_grids(CudaSession&) noexcept;
/// Queues (GPU blocks, as one launch of all blocks of a grid) or performs (CPU threads) that many passes through the loop.
/// Throws Error{timeout} if a CPU thread gave up.
void perform_ops(const CudaSession&, ActorState&, u64 passes);
/// Throws Error{timeout}: an actor did not see a value.
[[noreturn]] void throw_in_vain(const CudaSession&, const Actor&, const Wait&, u64 value);
/// Throws Error{timeout} if a GPU's block gave up waiting since its result was reset.
void check_waits(const CudaSession&);
/// Adds the comparison of a word with the value that it was set to last, and of what was copied, written or read.
void check_op(const CudaSession&, const ActorState&, const Step&, Checks&);

}  // namespace linkscope
