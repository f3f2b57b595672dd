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
/// The op of a wait for a descriptor, whose first slot has that address.
[[nodiscard]] ActorOp take_op(const Wait&, Word start);
/// A block that performs `count` iterations from `first`. `result`: two words, the sum of what was loaded and the op that
/// waited in vain.
struct BlockLaunch {
  std::span<const ActorOp> ops;  // at most `most_actor_ops`
  u64 first = 0, count = 0;
  u32 threads = 1;
  CUdeviceptr result = 0;
};
void queue_block(Device&, CUstream, const BlockLaunch&);

/// Builds the table of an actor's ops, when all memory has its address.
void prepare_ops(const CudaSession&, ActorState&);
/// Queues (GPU blocks, as one launch) or performs (CPU threads) that many passes through the loop. Throws Error{timeout} if a CPU
/// thread gave up.
void perform_ops(const CudaSession&, ActorState&, u64 passes);
/// Throws Error{timeout}: an actor did not see a value.
[[noreturn]] void throw_in_vain(const CudaSession&, const Actor&, const Wait&, u64 value);
/// Throws Error{timeout} if a GPU's block gave up waiting since its result was reset.
void check_waits(const CudaSession&);
/// Adds the comparison of a word with the value that it was set to last, and of what was copied, written or read.
void check_op(const CudaSession&, const ActorState&, const Step&, Checks&);

}  // namespace linkscope
