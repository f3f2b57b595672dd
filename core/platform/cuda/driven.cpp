#include "platform/cuda/driven.hpp"

#include <algorithm>
#include <array>
#include <variant>

#include "base/cpu_pairs.hpp"
#include "base/descriptor_ops.hpp"
#include "base/error.hpp"
#include "host/words.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/stamps.hpp"
#include "platform/cuda/verification.hpp"
#include "program/turns.hpp"

namespace linkscope {
namespace {

Word address_of(const CudaSession& session, const Span& word, u64 iteration) {
  return reinterpret_cast<Word>(session.buffers[word.region]->host()) + word.offset_at(iteration);
}

/// The words of a host thread that sets those which are due whenever it looks for another.
struct DrivingMemory {
  DueWords& due;

  [[nodiscard]] Word acquire(Word word) const {
    due.set_ready();
    return CpuMemory::acquire(word);
  }
  [[nodiscard]] static Word now_ns() { return CpuMemory::now_ns(); }
  [[nodiscard]] Pair load_pair(Word at) const {
    due.set_ready();
    const auto [first, second] = load_whole_pair(at);
    return {first, second};
  }
  static void fence() { CpuMemory::fence(); }
};

class WaitRunner final : public StepRunner {
 public:
  WaitRunner(const Actor& actor, const Wait& wait) : actor_{actor}, wait_{wait} {}

  void run(CudaSession& session, ActorState& state, u64) override {
    DrivingMemory memory{*state.due};
    const u64 value = wait_.value + state.iteration * wait_.step;
    const auto timeout_ns = static_cast<Word>(wait_.timeout.count() * 1e9);
    if (!poll(memory, address_of(session, wait_.word, state.iteration), value, timeout_ns))
      throw_in_vain(session, actor_, wait_, value);
  }

 private:
  const Actor& actor_;
  const Wait& wait_;
};

/// Takes the descriptor, and queues what it asks for: the copy that follows is of the same iteration.
class TakeRunner final : public StepRunner {
 public:
  TakeRunner(const Actor& actor, const Wait& wait) : actor_{actor}, wait_{wait} {}

  void run(CudaSession& session, ActorState& state, u64) override {
    DrivingMemory memory{*state.due};
    const ActorOp op = take_op(wait_, address_of(session, wait_.word, 0));
    std::array<Operation, most_descriptor_words> taken;
    if (!take_descriptor(op, state.iteration, memory, taken.data()))
      throw_in_vain(session, actor_, wait_, wait_.value + state.iteration * wait_.step);
    for (u64 i = 0; i < op.pairs; ++i)
      if (!is_asked_for(taken[i], state.iteration))
        throw Error{ErrorKind::failed, "a descriptor asks for something else than its program says"};
  }

 private:
  [[nodiscard]] bool is_asked_for(const Operation& one, u64 iteration) const {
    const auto& [ring, bytes, from, to, signal] = *wait_.job;
    const auto within = [&](const Span& span) { return span.offset_at(iteration) - span.offset; };
    if (one.verb == Verb::set)
      return signal && one.remote == signal->offset && one.value == wait_.value + iteration * wait_.step;
    if (one.verb == Verb::none) return true;
    return to && one.local == within(*from) && one.remote == within(*to) && one.bytes == to->bytes;
  }

  const Actor& actor_;
  const Wait& wait_;
};

bool is_kernel(const Move& move) { return move.engine == Engine::sm || move.engine == Engine::tma; }

bool launches_kernels(const Actor& actor) {
  return std::any_of(actor.loop.begin(), actor.loop.end(), [](const Step& step) {
    const auto* move = std::get_if<Move>(&step);
    return move && is_kernel(*move);
  });
}

/// Sets a word when the copies before it are done: by an event, or by waiting for the stream if these are kernels.
class SetRunner final : public StepRunner {
 public:
  SetRunner(const Actor& actor, const Step& step)
      : synchronizes_{launches_kernels(actor)}, step_{step}, set_{std::get<Set>(step)} {}

  void run(CudaSession& session, ActorState& state, u64) override {
    const Word word = address_of(session, set_.word, state.iteration);
    const u64 value = set_.value + state.iteration * set_.step;
    if (!synchronizes_) return state.due->add(word, value);
    state.stream->synchronize();
    CpuMemory::set(word, value);
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    check_op(session, state, step_, checks);
  }

 private:
  bool synchronizes_;
  const Step& step_;
  const Set& set_;
};

}  // namespace

bool is_driven(const Actor& actor) { return actor.kind == ActorKind::stream && exchanges_words(actor); }

std::string why_not_driven(const Program& program, const Actor& actor) {
  if (actor.clock != Clock::host)
    return "a stream that exchanges words is driven by its host thread here, so only the host's clock times it";
  for (const auto& step : actor.loop) {
    const auto* move = std::get_if<Move>(&step);
    const bool word = std::holds_alternative<Set>(step) || std::holds_alternative<Wait>(step);
    const bool computes = std::holds_alternative<Opaque>(step);
    if (!word && !computes && !(move && (move->engine == Engine::ce || is_kernel(*move)) && !move->by))
      return "a stream that exchanges words copies by its own copy engine or kernels, or computes, between them here";
    const auto* set = std::get_if<Set>(&step);
    if (set && (set->job || set->adds)) return "a stream's host thread posts no descriptors and adds to no words here";
    if (job_of(step) && !has_whole_pairs()) return "this CPU does not load 16 bytes at once, as descriptors need";
    if (payload_of(step)) return "a stream's host thread exchanges words without a payload here";
    for (const auto& touch : touches(step)) {
      const auto& region = program.regions[touch.span.region];
      if (word && (traits_of(region.kind).holder != Holder::host || region.content != Content::zero))
        return "a stream's host thread exchanges words in host memory that begins at zero here";
      if (!word && is_pageable(region.kind))
        return "the driver copies pageable memory on the host, which would keep a stream's host thread from its words";
    }
  }
  return "";
}

void DueWords::add(Word word, Word value) {
  Due due{nullptr, word, value};
  if (spare_.empty()) {
    due.done = std::make_unique<Event>(driver_, CU_EVENT_DISABLE_TIMING);
  } else {
    due.done = std::move(spare_.back());
    spare_.pop_back();
  }
  LINKSCOPE_CU(driver_, cuEventRecord, due.done->get(), stream_.get());
  due_.push_back(std::move(due));
}

void DueWords::set_first() {
  CpuMemory::set(due_.front().word, due_.front().value);
  spare_.push_back(std::move(due_.front().done));
  due_.pop_front();
}

void DueWords::set_ready() {
  while (!due_.empty()) {
    const CUresult status = driver_.cuEventQuery(due_.front().done->get());
    if (status == CUDA_ERROR_NOT_READY) return;
    driver_.check(status, "cuEventQuery");
    set_first();
  }
}

void DueWords::set_all() {
  while (!due_.empty()) set_ready();
}

void DueWords::drop() {
  driver_.cuStreamSynchronize(stream_.get());
  while (!due_.empty()) {
    spare_.push_back(std::move(due_.front().done));
    due_.pop_front();
  }
}

std::unique_ptr<StepRunner> word_runner(const Actor& actor, const Step& step) {
  const auto* wait = std::get_if<Wait>(&step);
  if (wait && wait->job) return std::make_unique<TakeRunner>(actor, *wait);
  if (wait) return std::make_unique<WaitRunner>(actor, *wait);
  return std::make_unique<SetRunner>(actor, step);
}

void drive(CudaSession& session, ActorState& state, u64 passes) {
  const u64 first = state.iteration;
  const auto run = [&](const Turn& turn) {
    state.iteration = turn.pass;
    for (auto step = turn.first_step; step < turn.end_step; ++step) state.steps[step]->run(session, state, 1);
  };
  try {
    if (state.latencies)
      stamp_on_host(*state.latencies, passes, [&](u64 i) { run({first + i, 0, state.steps.size()}); });
    else for_each_turn(*state.actor, session.program.passes, first, passes, run);
    state.iteration = first + passes;
    state.due->set_all();
  } catch (...) {
    state.due->drop();  // queued copies may still write
    throw;
  }
}

}  // namespace linkscope
