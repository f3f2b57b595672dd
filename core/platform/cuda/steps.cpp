#include "platform/cuda/steps.hpp"

#include <array>
#include <variant>

#include "base/error.hpp"
#include "gpu/device_work.hpp"
#include "platform/cuda/caller.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/collectives.hpp"
#include "platform/cuda/driven.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/kernel_executors.hpp"
#include "platform/cuda/library_calls.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/messages.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/cuda/ranks.hpp"
#include "platform/cuda/references.hpp"
#include "platform/cuda/verification.hpp"
#include "program/origin.hpp"

namespace linkscope {
namespace {

// --- one step -------------------------------------------------------------------------------------------------------

class MoveRunner final : public StepRunner {
 public:
  MoveRunner(const Actor& actor, const Move& move) : actor_{actor}, move_{move} {}

  void load_code(ActorState& state) override {
    code_ = copy_code(move_.by ? *state.helpers.at(move_.by->index).device : *state.device, move_);
  }
  void run(CudaSession& session, ActorState& state, u64) override { queue_move(session, state, move_, code_); }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    if (is_computed(session.program, move_.to)) return;  // a result has taken its place
    if (has_result(session.program, move_.from))
      check_copy_of_result(session, move_.from, move_.to, state.iteration, checks);
    else check_copied(session, state, pattern_of(session.whole, actor_, move_), move_.to, checks);
  }

 private:
  const Actor& actor_;
  const Move& move_;
  CUfunction code_ = nullptr;
};

class KernelRunner final : public StepRunner {
 public:
  explicit KernelRunner(const Kernel& kernel) : kernel_{kernel}, executor_{executor_of(kernel)} {}

  void load_code(ActorState& state) override {
    code_ = state.device->function(traits_of(kernel_.id).module, executor_.function);
    if (kernel_.sm) state.device->allow_all_shared(code_);
  }
  void run(CudaSession& session, ActorState& state, u64 steps) override {
    if (state.stream) executor_.queue({session, state, kernel_, code_, steps});
    else executor_.do_on_cpu(session, state, kernel_, steps);
  }
  [[nodiscard]] std::optional<u64> first_result(const CudaSession& session) const override {
    const Access& access = kernel_.traffic.front();
    const Proof proof = traits_of(kernel_.id).proof;
    if (proof == Proof::position) return session.buffers[access.span.region]->address() + access.span.offset;
    return proof == Proof::sum && access.dir == Access::Dir::read ? std::optional<u64>{0} : std::nullopt;
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    executor_.add_checks(session, state, kernel_, checks);
  }

 private:
  const Kernel& kernel_;
  const KernelExecutor& executor_;
  CUfunction code_ = nullptr;
};

/// An op, which is performed by the loop as a whole.
class OpRunner final : public StepRunner {
 public:
  explicit OpRunner(const Step& step) : step_{step} {}

  void load_code(ActorState& state) override {
    const auto* move = std::get_if<Move>(&step_);
    (void)block_code(*state.device, move && move->engine == Engine::tma);
  }
  [[nodiscard]] std::optional<u64> first_result(const CudaSession&) const override { return 0; }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    check_op(session, state, step_, checks);
  }

 private:
  const Step& step_;
};

class CallRunner final : public StepRunner {
 public:
  explicit CallRunner(const Call& call) : call_{call} {}

  void run(CudaSession& session, ActorState& state, u64) override { do_phase(session, state, call_); }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    if (!call_.on) checks.add(state.device, [&](Verdict& into) { check_phase(session, call_, into); });
    else if (call_.to) check_copied(session, state, *call_.span, *call_.to, checks);
  }

 private:
  const Call& call_;
};

class PrefetchRunner final : public StepRunner {
 public:
  explicit PrefetchRunner(const Prefetch& prefetch) : prefetch_{prefetch} {}

  void run(CudaSession& session, ActorState& state, u64) override { queue_prefetch(session, state, prefetch_); }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    check_prefetch(session, state, prefetch_, checks);
  }

 private:
  const Prefetch& prefetch_;
};

std::unique_ptr<StepRunner> runner_of(const Actor& actor, const Step& step) {
  if (const auto* message = std::get_if<RankMessage>(&step)) return rank_message_runner(*message);
  if (const auto* collective = std::get_if<Collective>(&step)) return collective_runner(*collective);
  if (performs_ops(actor)) return std::make_unique<OpRunner>(step);
  const bool word = std::holds_alternative<Wait>(step) || std::holds_alternative<Set>(step);
  if (is_driven(actor) && word) return word_runner(actor, step);
  if (const auto* move = std::get_if<Move>(&step)) return std::make_unique<MoveRunner>(actor, *move);
  if (const auto* kernel = std::get_if<Kernel>(&step)) return std::make_unique<KernelRunner>(*kernel);
  if (const auto* call = std::get_if<Opaque>(&step)) return library_runner(*call);
  if (const auto* call = std::get_if<Call>(&step)) return std::make_unique<CallRunner>(*call);
  if (const auto* message = std::get_if<Message>(&step)) return message_runner(actor, *message);
  return std::make_unique<PrefetchRunner>(std::get<Prefetch>(step));
}

// --- a loop ---------------------------------------------------------------------------------------------------------

void perform_ops_of(CudaSession& session, ActorState& state, u32 count) {
  perform_ops(session, state, u64{count} * session.program.passes);
}

void drive_stream(CudaSession& session, ActorState& state, u32 count) {
  drive(session, state, u64{count} * session.program.passes);
}

void make_calls(CudaSession&, ActorState& state, u32 count) {
  state.caller->make(state.iteration, count);
  state.iteration += count;
}

/// One launch is the whole batch (supports() refused longer loops).
void take_dependent_steps(CudaSession& session, ActorState& state, u32 count) {
  const auto& kernel = std::get<Kernel>(state.actor->loop.front());
  if (count > 0) state.steps.front()->run(session, state, u64{count} * kernel.dependent_steps);
  state.iteration += count;
}

void copy_together(CudaSession& session, ActorState& state, u32 count) {
  if (count > 0) queue_together(session, state, std::get<Move>(state.actor->loop.front()), count);
}

void run_each(CudaSession& session, ActorState& state, u32 count) {
  for (u32 i = 0; i < count; ++i) {
    for (const auto& step : state.steps) step->run(session, state, 1);
    ++state.iteration;
  }
}

ActorState::Loop loop_of(const ActorState& state) {
  const auto* kernel = std::get_if<Kernel>(&state.actor->loop.front());
  if (talks_to_ranks(*state.actor)) return exchange_messages;
  if (collective_of(*state.actor) && !state.stream) return run_collective_by_mpi;
  if (performs_ops(*state.actor)) return perform_ops_of;
  if (is_driven(*state.actor)) return drive_stream;
  if (state.caller) return make_calls;
  if (kernel && kernel->dependent_steps > 0) return take_dependent_steps;
  return made_together(*state.actor) ? copy_together : run_each;
}

}  // namespace

std::string why_no_step(const Kernel& kernel, ActorKind kind) {
  const bool known = on_gpu(kind) || traits_of(kernel.id).by_cpu_thread;
  return known ? ""
               : std::string{"a "} + to_string(kind) + " cannot run the kernel '" + to_string(kernel.id) + "' here";
}

void choose_executors(CudaSession& session) {
  for (auto& state : session.actors) {
    for (const auto& step : state.actor->loop) state.steps.push_back(runner_of(*state.actor, step));
    state.loop = loop_of(state);
    if (is_driven(*state.actor)) state.due = std::make_shared<DueWords>(session.driver, *state.stream);
    prepare_ops(session, state);
    prepare_rank_messages(session, state);
  }
}

void load_code(CudaSession& session) {
  for (auto& state : session.actors) {
    if (!state.device) continue;
    (void)state.device->function("gate", "linkscope_gate");
    for (const auto& step : state.steps) step->load_code(state);
  }
}

namespace {

CUdeviceptr actor_result(const CudaSession& session, const ActorState& state) {
  constexpr std::size_t most_actors = Device::most_results - first_actor_result;
  const auto actor = static_cast<std::size_t>(&state - session.actors.data());
  if (actor >= most_actors)
    throw Error{ErrorKind::usage, "a program of more than " + std::to_string(most_actors) + " actors"};
  return state.device->result(first_actor_result + actor);
}

}  // namespace

void start_results(const CudaSession& session, ActorState& state) {
  if (!state.device) return;
  for (const auto& step : state.steps) {
    const auto first = step->first_result(session);
    if (!first) continue;
    if (!state.result) state.result = actor_result(session, state);
    const std::array<u64, 2> words{*first, 0};
    const auto& stream = state.device->stream(0);
    state.device->use();
    LINKSCOPE_CU(session.driver, cuMemcpyHtoDAsync, state.result, words.data(), sizeof words, stream.get());
    stream.synchronize();
    state.turns = 0;
  }
}

void check_turns(const CudaSession& session) {
  for (const auto& state : session.actors) {
    const auto* kernel = state.stream ? std::get_if<Kernel>(&state.actor->loop.front()) : nullptr;
    if (!kernel || !kernel->sm) continue;
    u64 taken = 0;
    state.device->use();
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &taken, turns_of(state), sizeof taken);
    if (taken == state.turns) continue;
    const auto place = to_string(state.actor->place);
    throw Error{ErrorKind::failed, "none of " + std::to_string(blocks_of(*state.device, kernel->shape)) +
                                       " blocks came to SM " + std::to_string(*kernel->sm) + " of " + place +
                                       ", so that nobody followed the chain there: something else may hold that SM, or "
                                       "this process may not use it"};
  }
}

Verdict verify(const CudaSession& session) {
  Checks checks;
  for (const auto& state : session.actors)
    for (const auto& step : state.steps) step->add_checks(session, state, checks);
  return checks.run();
}

}  // namespace linkscope
