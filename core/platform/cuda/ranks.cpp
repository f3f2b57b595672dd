#include "platform/cuda/ranks.hpp"

#include <variant>

#include "base/error.hpp"
#include "host/words.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/verification.hpp"
#include "program/origin.hpp"

namespace linkscope {
namespace {

class RankMessageRunner final : public StepRunner {
 public:
  explicit RankMessageRunner(const RankMessage& message) : message_{message} {}

  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    if (message_.sends || !message_.span) return;
    check_copied(session, state, first_filled_from(session.whole, *message_.theirs), *message_.span, checks);
  }

 private:
  const RankMessage& message_;
};

u32 window_of(const Actor& actor) {
  const auto* message = std::get_if<RankMessage>(&actor.loop.front());
  return message ? message->window : 0;
}

/// Messages among words: each step in its order.
void exchange_among_words(CudaSession& session, ActorState& state, u64 passes) {
  CpuMemory memory{0, state.crew.get(), state.files};
  for (const u64 end = state.iteration + passes; state.iteration < end; ++state.iteration) {
    auto post = state.posts.begin();
    const ActorOp* op = state.ops.data();
    for (const auto& step : state.actor->loop) {
      if (std::holds_alternative<RankMessage>(step)) {
        session.mpi->exchange({&*post++, 1}, 0, state.iteration, 1);
      } else if (!perform(*op++, state.iteration, memory)) {
        const auto& wait = std::get<Wait>(step);
        throw_in_vain(session, *state.actor, wait, wait.value + state.iteration * wait.step);
      }
    }
  }
}

}  // namespace

std::string why_no_ranks(const MpiWorld* mpi, const Program& program, const Actor& actor) {
  if (!mpi) return "messages between ranks need MPI, and this process was not started by mpiexec or srun";
  for (const auto& step : actor.loop) {
    const auto* message = std::get_if<RankMessage>(&step);
    if (!message || !message->span) continue;
    if (message->span->bytes > most_mpi_bytes)
      return bytes_text(message->span->bytes) + ": a message of MPI has less than 2 GiB";
    const auto& region = program.regions[message->span->region];
    if (region.at.kind == PlaceKind::gpu && !mpi->facts().why_not_gpu.empty())
      return mpi->facts().library + " takes no buffers of GPUs: " + mpi->facts().why_not_gpu +
             "; use way=staged or way=double, or an MPI that is built with CUDA";
  }
  return "";
}

void prepare_rank_messages(const CudaSession& session, ActorState& state) {
  for (const auto& step : state.actor->loop) {
    const auto* message = std::get_if<RankMessage>(&step);
    if (!message) continue;
    MpiPost& post = state.posts.emplace_back();
    post.sends = message->sends;
    post.peer = message->peer;
    if (!message->span) continue;
    const Span& span = *message->span;
    const Buffer& buffer = *session.buffers[span.region];
    auto* start = buffer.host() ? buffer.host() : reinterpret_cast<std::byte*>(buffer.address());
    post.start = start + span.offset;
    post.bytes = span.bytes;
    post.stride = span.stride;
    post.slices = span.slices;
    if (!buffer.host()) state.device_of_posts = buffer.device();
  }
}

void exchange_by_mpi(CudaSession& session, ActorState& state, u32 count) {
  const u64 passes = u64{count} * session.program.passes;
  if (state.device_of_posts) state.device_of_posts->use();  // the library copies in the calling thread's context
  if (performs_ops(*state.actor)) return exchange_among_words(session, state, passes);
  session.mpi->exchange(state.posts, window_of(*state.actor), state.iteration, passes);
  state.iteration += passes;
}

std::unique_ptr<StepRunner> rank_message_runner(const RankMessage& message) {
  return std::make_unique<RankMessageRunner>(message);
}

}  // namespace linkscope
