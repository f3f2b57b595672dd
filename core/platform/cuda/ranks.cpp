#include "platform/cuda/ranks.hpp"

#include <algorithm>
#include <set>
#include <variant>

#include "base/error.hpp"
#include "host/topology.hpp"
#include "host/words.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/verification.hpp"
#include "program/origin.hpp"
#include "program/turns.hpp"

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

void exchange(const CudaSession& session, const ActorState& state, std::span<const RankPost> posts, u32 window,
              u64 count) {
  const auto carrier = carrier_of(*state.actor);
  if (carrier == Engine::nixl) session.nixl->exchange(posts, window, count);
  else if (carrier == Engine::ucx) session.ucx->exchange(posts, window, state.iteration, count);
  else session.mpi->exchange(posts, window, state.iteration, count);
}

void send_ahead(const CudaSession& session, const ActorState& state, const RankPost& post, u32 ahead) {
  if (carrier_of(*state.actor) == Engine::ucx) session.ucx->send_ahead(post, state.iteration, ahead);
  else session.mpi->send_ahead(post, state.iteration, ahead);
}

void finish_sends(const CudaSession& session, const ActorState& state) {
  if (carrier_of(*state.actor) == Engine::ucx) session.ucx->finish_sends(0);
  else session.mpi->finish_sends(0);
}

bool starts_ahead(const Actor& actor) {
  const auto* message = std::get_if<RankMessage>(&actor.loop.front());
  return message && message->ahead > 0;
}

/// The messages among the first steps of a loop.
std::ptrdiff_t messages_before(const std::vector<Step>& loop, std::size_t steps) {
  return std::count_if(loop.begin(), loop.begin() + static_cast<std::ptrdiff_t>(steps),
                       [](const Step& step) { return std::holds_alternative<RankMessage>(step); });
}

/// Each step in its order, of words too. Messages in a window are under way together.
void exchange_in_order(CudaSession& session, ActorState& state, u64 passes) {
  CpuMemory memory{0, state.crew.get(), state.files};
  const bool together = std::any_of(state.actor->loop.begin(), state.actor->loop.end(), [](const Step& step) {
    const auto* message = std::get_if<RankMessage>(&step);
    return message && message->window > 0;
  });
  const auto& loop = state.actor->loop;
  const u64 first = state.iteration;
  for_each_turn(*state.actor, session.program.passes, first, passes, [&](const Turn& turn) {
    state.iteration = turn.pass;
    const auto messages = messages_before(loop, turn.first_step);
    auto post = state.posts.begin() + messages;
    const ActorOp* op = state.ops.data() + (static_cast<std::ptrdiff_t>(turn.first_step) - messages);
    for (auto at = turn.first_step; at < turn.end_step; ++at) {
      if (const auto* message = std::get_if<RankMessage>(&loop[at])) {
        if (message->ahead) send_ahead(session, state, *post, message->ahead);
        else if (!together) exchange(session, state, {&*post, 1}, 0, 1);
        else if (post == state.posts.begin()) exchange(session, state, state.posts, 1, 1);
        ++post;
      } else {
        const ActorOp& performed = *op++;
        if (perform(ready(performed, state.iteration), performed, state.iteration, memory)) continue;
        const auto& wait = std::get<Wait>(loop[at]);
        throw_in_vain(session, *state.actor, wait, wait.value + state.iteration * wait.step);
      }
    }
  });
  state.iteration = first + passes;
  if (!state.posts.empty()) finish_sends(session, state);
}

}  // namespace

std::optional<Engine> carrier_of(const Actor& actor) {
  for (const auto& step : actor.loop)
    if (const auto* message = std::get_if<RankMessage>(&step)) return message->by;
  return {};
}

std::string why_no_ranks(const MpiWorld* mpi, UcxOfProcess& ucx, NixlOfProcess& nixl, const Program& program,
                         const Actor& actor, u32 process) {
  const auto carrier = carrier_of(actor);
  if (carrier == Engine::nixl) return nixl.why_not();
  if (carrier == Engine::ucx) return ucx.why_not(program, actor, process);
  if (!mpi) return "messages of MPI need ranks that mpiexec started, or srun with a PMI that the MPI library knows";
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
    RankPost& post = state.posts.emplace_back();
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
    post.on_gpu = buffer.host() == nullptr;
    if (!post.on_gpu) continue;
    state.device_of_posts = buffer.device();
    buffer.device()->keep_context();
  }
}

namespace {

/// Whether this program itself polls for an actor's messages, on a CPU that it chooses.
bool polls_here(const Actor& actor) {
  const auto carrier = carrier_of(actor);
  return carrier == Engine::ucx || carrier == Engine::nixl;
}

}  // namespace

std::vector<int> cpus_of_messages(const Program& whole, const Actor& actor) {
  std::set<u32> processes;
  for (const auto& other : whole.actors)
    if (polls_here(other) && other.place == actor.place) processes.insert(other.process);
  if (!polls_here(actor) || processes.size() < 2) return {};
  const auto number = std::distance(processes.begin(), processes.find(actor.process));
  return dealt_cpus(actor.place.index, static_cast<u32>(number), static_cast<u32>(processes.size()));
}

void warm_up_messages(CudaSession& session) {
  constexpr u64 most_bytes = u64{8} << 20, most_messages = 512;
  constexpr u32 window = 64;
  for (auto& state : session.actors) {
    if (state.posts.empty()) continue;
    const u64 bytes = std::max<u64>(1, state.posts.front().bytes);
    if (state.device_of_posts) state.device_of_posts->use();
    exchange(session, state, state.posts, window, std::min(most_messages, most_bytes / bytes));
  }
}

void exchange_messages(CudaSession& session, ActorState& state, u32 count) {
  const u64 passes = u64{count} * session.program.passes;
  if (state.device_of_posts) state.device_of_posts->use();  // the library copies in the calling thread's context
  if (performs_ops(*state.actor) || starts_ahead(*state.actor) || state.actor->first_steps)
    return exchange_in_order(session, state, passes);
  exchange(session, state, state.posts, window_of(*state.actor), passes);
  state.iteration += passes;
}

u32 agree_on_trips(CudaSession& session, ActorState& state, u32 wanted) {
  u64 number = wanted;
  if (carrier_of(*state.actor) == Engine::nixl) {  // which writes to registered memory only
    const auto& first = state.posts.front();
    if (first.sends) session.peers->give(first.peer, number);
    else number = session.peers->take<u64>(first.peer, "its number of round trips", session.patience());
    return static_cast<u32>(number);
  }
  // UCX asks for events of earlier messages, and the driver crashes if no context is current.
  if (state.device_of_posts) state.device_of_posts->use();
  RankPost post;
  post.sends = state.posts.front().sends;
  post.peer = state.posts.front().peer;
  post.start = reinterpret_cast<std::byte*>(&number);
  post.bytes = sizeof number;
  exchange(session, state, {&post, 1}, 0, 1);
  return static_cast<u32>(number);
}

std::unique_ptr<StepRunner> rank_message_runner(const RankMessage& message) {
  return std::make_unique<RankMessageRunner>(message);
}

}  // namespace linkscope
