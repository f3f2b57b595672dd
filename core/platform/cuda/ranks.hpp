// Messages of MPI between the processes of a program, by the library that the worker has loaded (mpi/world.hpp).
#pragma once
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Why an actor's messages of MPI cannot be exchanged here; "" if they can. `mpi`: null without MPI.
[[nodiscard]] std::string why_no_ranks(const MpiWorld* mpi, const Program&, const Actor&);
/// Prepares the messages of an actor's loop, when all memory has its address.
void prepare_rank_messages(const CudaSession&, ActorState&);
/// That many iterations of a loop with messages of MPI, and words.
void exchange_by_mpi(CudaSession&, ActorState&, u32 count);
/// The step as a part of its loop: compares what has come.
[[nodiscard]] std::unique_ptr<StepRunner> rank_message_runner(const RankMessage&);

}  // namespace linkscope
