// Messages of MPI, UCX or NIXL between the processes of a program, by the library that the worker has loaded.
#pragma once
#include "platform/cuda/nixl.hpp"
#include "platform/cuda/session.hpp"
#include "platform/cuda/ucx.hpp"

namespace linkscope {

/// What carries the messages of an actor to other processes; none: it has none.
[[nodiscard]] std::optional<Engine> carrier_of(const Actor&);
/// Why an actor's messages to other processes cannot be exchanged here; "" if they can. `mpi`: null without MPI.
/// `process`: this one.
[[nodiscard]] std::string why_no_ranks(const MpiWorld* mpi, UcxOfProcess&, NixlOfProcess&, const Program&, const Actor&,
                                       u32 process);
/// The CPUs for the thread of an actor that exchanges messages of UCX or NIXL with other processes of its node; none: all of the
/// node. Ranks of MPI have the CPUs that their launcher gave them.
[[nodiscard]] std::vector<int> cpus_of_messages(const Program& whole, const Actor&);
/// Exchanges messages of the session before any sample. At first use, libraries and the kernel make the memory that
/// messages go through: by UCX, a round trip of 4 KiB takes 15 us for the first 256 messages, and 2 us after them.
void warm_up_messages(CudaSession&);
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
