#include "platform/cuda/durations.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "platform/cuda/moves.hpp"
#include "platform/cuda/ranks.hpp"
#include "platform/cuda/turns.hpp"
#include "program/series.hpp"

namespace linkscope {
namespace {

constexpr double shortest_sleep = 100e-6;  // s
constexpr u32 trips_between = 16;          // that a stream's host thread makes before both sides ask whether to go on

/// The number of actors that exchange words, and run batches of their own.
std::size_t exchanging(const CudaSession& session) {
  return static_cast<std::size_t>(
      std::count_if(session.actors.begin(), session.actors.end(),
                    [](const ActorState& state) { return exchanges_words(*state.actor) && !state.leader; }));
}

/// Seconds of a batch.
double part_of(const Duration& lasts) { return lasts.interval.count() / 4; }

/// The ends of an actor's copies by the copy engines of a GPU: (from that GPU, to that GPU).
std::set<std::pair<bool, bool>> directions(const Program& program, const Actor& actor, const Place& gpu) {
  std::set<std::pair<bool, bool>> found;
  for (const auto& step : actor.loop)
    if (const auto* move = std::get_if<Move>(&step);
        move && move->engine == Engine::ce && actor.kind == ActorKind::stream && move->by.value_or(actor.place) == gpu)
      found.emplace(program.regions[move->from.region].at == gpu, program.regions[move->to.region].at == gpu);
  return found;
}

/// The messages that the host thread of a stream exchanges while it waits for the stream. A message is due when the one
/// before has been answered, so its latency includes the thread's work for the stream in between.
class Meanwhile {
 public:
  Meanwhile(CudaSession& session, ActorState& state, const Duration& lasts, Series& series)
      : session_{session},
        state_{state},
        series_{series},
        start_{host_now()},
        last_{start_},
        marks_{lasts, series, start_} {}

  void exchange() {
    if (goes_on(trips_between)) trip();
    else std::this_thread::yield();
  }
  /// The other rank waits in each agreed round trip, so all of them must be made.
  Stamp end() {
    while (ranks_ && goes_on(0)) trip();
    marks_.end(last_, done_);
    return {start_, last_};
  }

 private:
  bool goes_on(u32 wanted) {
    if (!ranks_ || left_ > 0) return true;
    if (!ended_) ended_ = (left_ = agree_on_trips(session_, state_, wanted)) == 0;
    return !ended_;
  }
  void trip() {
    state_.loop(session_, state_, 1);
    const double now = host_now();
    series_.latencies.add(now - last_);
    marks_.add(now, ++done_);
    last_ = now;
    if (left_ > 0) --left_;
  }

  CudaSession& session_;
  ActorState& state_;
  Series& series_;
  double start_, last_;
  Marks marks_;
  u64 done_ = 0;
  const bool ranks_ = talks_to_ranks(*state_.actor);
  u32 left_ = 0;  // round trips with another rank that were agreed on
  bool ended_ = false;
};

/// What one actor does between the common start and end.
class Run {
 public:
  Run(CudaSession& session, ActorState& state, const Duration& lasts, Series& series, Turns& turns)
      : session_{session},
        state_{state},
        lasts_{lasts},
        series_{series},
        turns_{turns},
        size_{*state.actor, part_of(lasts), turns} {}

  Stamp on_cpu() {
    if (talks_to_ranks(*state_.actor)) return in_trips();
    if (state_.actor->singly) return singly();
    const double start = host_now();
    Marks marks{lasts_, series_, start};
    double last = start;
    u64 done = 0;
    for (u64 batch = 0; turns_.begins(*state_.actor, batch); ++batch) {
      const u32 count = size_.next();
      const double began = host_now();
      state_.loop(session_, state_, count);
      const double now = host_now();
      marks.add(now, done += count);
      size_.took(now - last);
      last = now;
      rest(now - began);
    }
    marks.end(last, done);
    return {start, last};
  }

  /// `meanwhile`: what the thread does while it waits for the stream; null: it blocks.
  Stamp on_gpu(Meanwhile* meanwhile) {
    if (state_.actor->singly) return singly();
    meanwhile_ = meanwhile;
    LINKSCOPE_CU(session_.driver, cuEventRecord, state_.enter->get(), state_.stream->get());
    LINKSCOPE_CU(session_.driver, cuEventSynchronize, state_.enter->get());
    start_ = last_ = host_now();
    Marks marks{lasts_, series_, start_};
    const bool rests = state_.actor->tenths < all_tenths;
    const u32 ahead = rests ? 1 : batches_ahead(session_.program, static_cast<u32>(&state_ - session_.actors.data()));
    for (u64 batch = 0; turns_.begins(*state_.actor, batch); ++batch) {
      if (queued_.size() == ahead) end_batch(marks);
      const double began = host_now();
      queue_batch();
      if (!rests) continue;
      end_batch(marks);
      rest(host_now() - began);
    }
    while (!queued_.empty()) end_batch(marks);
    state_.stream->synchronize();
    marks.end(last_, done_);
    return {start_, last_};
  }

 private:
  struct Batch {
    std::unique_ptr<Event> end;
    u32 count = 0;
  };
  CudaSession& session_;
  ActorState& state_;
  const Duration& lasts_;
  Series& series_;
  Turns& turns_;
  BatchSize size_;
  std::deque<Batch> queued_;
  std::vector<std::unique_ptr<Event>> spare_;
  Meanwhile* meanwhile_ = nullptr;
  double start_ = 0, last_ = 0;
  u64 done_ = 0;

  /// Rests after `worked` seconds, at most until the common end.
  void rest(double worked) const {
    const double end = std::min(host_now() + rest_after(*state_.actor, worked), turns_.end());
    // A sleep lasts longer than it should by as much as a short rest, so the last part of each is not slept.
    if (const double sleep = end - host_now() - shortest_sleep; sleep > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>{sleep});
    while (host_now() < end) std::this_thread::yield();
  }
  /// One iteration at a time; its work has ended before the next begins.
  Stamp singly() {
    const double start = host_now();
    Marks marks{lasts_, series_, start};
    double last = start;
    u64 done = 0;
    for (u64 batch = 0; turns_.begins(*state_.actor, batch); ++batch) {
      const double begun = host_now();
      state_.loop(session_, state_, 1);
      if (state_.stream) state_.stream->synchronize();
      last = host_now();
      series_.latencies.add(last - begun);
      marks.add(last, ++done);
    }
    marks.end(last, done);
    return {start, last};
  }

  /// Round trips with another process, in blocks: the side that answers must know how many follow.
  Stamp in_trips() {
    const double start = host_now();
    Marks marks{lasts_, series_, start};
    double last = start;
    u64 done = 0, block = 0;
    const auto wanted = [&] { return turns_.begins(*state_.actor, block++) ? size_.next() : 0; };
    while (const u32 trips = agree_on_trips(session_, state_, wanted())) {
      const double block_began = host_now();
      for (u32 trip = 0; trip < trips; ++trip) {
        const double begun = host_now();
        state_.loop(session_, state_, 1);
        last = host_now();
        series_.latencies.add(last - begun);
        marks.add(last, ++done);
      }
      size_.took(last - block_began);
    }
    marks.end(last, done);
    return {start, last};
  }

  void queue_batch() {
    Batch batch{nullptr, size_.next()};
    if (spare_.empty()) {
      batch.end = std::make_unique<Event>(session_.driver);
    } else {
      batch.end = std::move(spare_.back());
      spare_.pop_back();
    }
    state_.loop(session_, state_, batch.count);
    LINKSCOPE_CU(session_.driver, cuEventRecord, batch.end->get(), state_.stream->get());
    queued_.push_back(std::move(batch));
  }

  /// Waits for the oldest batch.
  void end_batch(Marks& marks) {
    Batch batch = std::move(queued_.front());
    queued_.pop_front();
    await(*batch.end);
    float ms = 0;
    LINKSCOPE_CU(session_.driver, cuEventElapsedTime, &ms, state_.enter->get(), batch.end->get());
    const double now = start_ + static_cast<double>(ms) * 1e-3;
    marks.add(now, done_ += batch.count);
    size_.took(now - last_);
    last_ = now;
    spare_.push_back(std::move(batch.end));
  }

  void await(const Event& event) {
    if (!meanwhile_) {
      LINKSCOPE_CU(session_.driver, cuEventSynchronize, event.get());
      return;
    }
    CUresult status;
    while ((status = session_.driver.cuEventQuery(event.get())) == CUDA_ERROR_NOT_READY) meanwhile_->exchange();
    session_.driver.check(status, "cuEventQuery");
  }
};

/// The actor whose messages the host thread of a stream exchanges; none for most streams.
std::optional<std::size_t> messages_of(const CudaSession& session, std::size_t stream) {
  for (std::size_t a = 0; a < session.actors.size(); ++a)
    if (session.actors[a].actor->thread_of == stream) return a;
  return {};
}

}  // namespace

u32 batches_ahead(const Program& program, u32 actor) {
  const Place& gpu = program.actors[actor].place;
  const auto own = directions(program, program.actors[actor], gpu);
  for (u32 other = 0; other < program.actors.size(); ++other)
    if (other != actor)
      for (const auto& direction : directions(program, program.actors[other], gpu))
        if (own.count(direction) != 0) return 1;
  return 3;
}

std::string why_no_duration(const CudaSession& session) {
  for (const auto& state : session.actors) {
    if (session.lockstep && keeps_step(*state.actor) && !makes_round_trips(*state.actor))
      return "actors that exchange words, streams of messages or collectives with another process run numbers of "
             "iterations here, and no durations";
    if (state.caller) return "calls are made in batches here: what they use is prepared before the time begins";
    if (made_together(*state.actor))
      return "copies that are issued together are prepared before the time begins, so they run in batches here";
    if (state.stream)
      if (auto why = session.driver.why_no("cuEventSynchronize"); !why.empty()) return why;
  }
  return "";
}

void sample_duration(CudaSession& session, const Duration& lasts, Stamp* stamps, Series* series) {
  make_ready(session, std::vector<u32>(session.actors.size(), 1));
  std::optional<Turns> turns;
  std::once_flag begun;
  const auto go = [&](std::size_t a, double start_s) {
    std::call_once(begun, [&] {
      turns.emplace(exchanging(session), session.expected_loop.count(), start_s + lasts.length.count(), part_of(lasts));
    });
    auto& state = session.actors[a];
    if (state.actor->thread_of || state.leader) return;  // another actor's thread runs it
    Run run{session, state, lasts, series[a], *turns};
    const auto messages = messages_of(session, a);
    std::optional<Meanwhile> meanwhile;
    if (messages) meanwhile.emplace(session, session.actors[*messages], lasts, series[*messages]);
    stamps[a] = state.stream ? run.on_gpu(meanwhile ? &*meanwhile : nullptr) : run.on_cpu();
    if (meanwhile) stamps[*messages] = meanwhile->end();
  };
  run_on_host_threads(session, {[](std::size_t) {}, go});
  follow_leaders(session, stamps);
  for (std::size_t a = 0; a < session.actors.size(); ++a)
    if (const auto leader = session.actors[a].leader) series[a] = series[*leader];
  check_results(session);
}

}  // namespace linkscope
