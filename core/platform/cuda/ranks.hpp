// Messages of MPI or UCX between the processes of a program, by the library that the worker has loaded.
#pragma once
#include "platform/cuda/session.hpp"
#include "platform/cuda/ucx.hpp"

namespace linkscope {

/// Why an actor's messages to other processes cannot be exchanged here; "" if they can. `mpi`: null without MPI.
[[nodiscard]] std::string why_no_ranks(const MpiWorld* mpi, UcxOfProcess&, const Program&, const Actor&);
/// Prepares the messages of an actor's loop, when all memory has its address.
void prepare_rank_messages(const CudaSession&, ActorState&);
/// That many iterations of a loop with such messages, and words.
void exchange_messages(CudaSession&, ActorState&, u32 count);
/// The number of round trips that follow in a sample of a duration; 0: the sample has ended. The side that begins round
/// trips sends its `wanted` to the other side, whose `wanted` does not count.
[[nodiscard]] u32 agree_on_trips(CudaSession&, ActorState&, u32 wanted);
/// The step as a part of its loop: compares what has come.
[[nodiscard]] std::unique_ptr<StepRunner> rank_message_runner(const RankMessage&);

}  // namespace linkscope
