#include "platform/cuda/durations.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "platform/cuda/moves.hpp"
#include "program/series.hpp"

namespace linkscope {
namespace {

constexpr double shortest_sleep = 100e-6;  // s
constexpr u32 most_in_batch = 1024;        // about as many launches as a stream queues

/// The ends of an actor's copies by the copy engines of a GPU: (from that GPU, to that GPU).
std::set<std::pair<bool, bool>> directions(const Program& program, const Actor& actor, const Place& gpu) {
  std::set<std::pair<bool, bool>> found;
  for (const auto& step : actor.loop)
    if (const auto* move = std::get_if<Move>(&step);
        move && move->engine == Engine::ce && actor.kind == ActorKind::stream && move->by.value_or(actor.place) == gpu)
      found.emplace(program.regions[move->from.region].at == gpu, program.regions[move->to.region].at == gpu);
  return found;
}

/// Decides which batches are begun. Actors that exchange words begin the same batches: where one of them has begun a batch
/// before the end, the others begin it too.
class Turns {
 public:
  explicit Turns(double end_s) : end_s_{end_s} {}

  [[nodiscard]] bool begins(const Actor& actor, u64 batch) {
    const bool early = host_now() < end_s_;
    if (!exchanges_words(actor)) return early;
    const std::lock_guard lock{guard_};
    if (early) common_ = std::max(common_, batch + 1);
    return batch < common_;
  }

  [[nodiscard]] double end() const { return end_s_; }

 private:
  double end_s_;
  std::mutex guard_;
  u64 common_ = 0;  // batches begun by any actor that exchanges words
};

/// The iterations of an actor's next batch: a part of an interval. Actors that exchange words have one count.
class BatchSize {
 public:
  BatchSize(const CudaSession& session, const Actor& actor, const Duration& lasts)
      : part_s_{lasts.interval.count() / 4}, grows_{!exchanges_words(actor) && actor.tenths == all_tenths} {
    if (const double once = session.expected_loop.count(); exchanges_words(actor) && once > 0)
      count_ = static_cast<u32>(std::clamp(part_s_ / once, 1.0, double{most_in_batch}));
  }

  [[nodiscard]] u32 count() const { return count_; }
  /// A batch took that long.
  void took(double seconds) {
    if (grows_ && seconds < part_s_ / 2) count_ = std::min(2 * count_, most_in_batch);
  }

 private:
  double part_s_;
  bool grows_;
  u32 count_ = 1;
};

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
    state_.loop(session_, state_, 1);
    const double now = host_now();
    series_.latencies.add(now - last_);
    marks_.add(now, ++done_);
    last_ = now;
  }
  Stamp end() {
    marks_.end(last_, done_);
    return {start_, last_};
  }

 private:
  CudaSession& session_;
  ActorState& state_;
  Series& series_;
  double start_, last_;
  Marks marks_;
  u64 done_ = 0;
};

/// What one actor does between the common start and end.
class Run {
 public:
  Run(CudaSession& session, ActorState& state, const Duration& lasts, Series& series)
      : session_{session}, state_{state}, lasts_{lasts}, series_{series}, size_{session, *state.actor, lasts} {}

  Stamp on_cpu(Turns& turns) {
    if (state_.actor->singly) return singly(turns);
    const double start = host_now();
    Marks marks{lasts_, series_, start};
    double last = start;
    u64 done = 0;
    for (u64 batch = 0; turns.begins(*state_.actor, batch); ++batch) {
      const u32 count = size_.count();
      const double began = host_now();
      state_.loop(session_, state_, count);
      const double now = host_now();
      marks.add(now, done += count);
      size_.took(now - last);
      last = now;
      rest(now - began, turns);
    }
    marks.end(last, done);
    return {start, last};
  }

  /// `meanwhile`: what the thread does while it waits for the stream; null: it blocks.
  Stamp on_gpu(Turns& turns, Meanwhile* meanwhile) {
    if (state_.actor->singly) return singly(turns);
    meanwhile_ = meanwhile;
    LINKSCOPE_CU(session_.driver, cuEventRecord, state_.enter->get(), state_.stream->get());
    LINKSCOPE_CU(session_.driver, cuEventSynchronize, state_.enter->get());
    start_ = last_ = host_now();
    Marks marks{lasts_, series_, start_};
    const bool rests = state_.actor->tenths < all_tenths;
    const u32 ahead = rests ? 1 : batches_ahead(session_.program, static_cast<u32>(&state_ - session_.actors.data()));
    for (u64 batch = 0; turns.begins(*state_.actor, batch); ++batch) {
      if (queued_.size() == ahead) end_batch(marks);
      const double began = host_now();
      queue_batch();
      if (!rests) continue;
      end_batch(marks);
      rest(host_now() - began, turns);
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
  BatchSize size_;
  std::deque<Batch> queued_;
  std::vector<std::unique_ptr<Event>> spare_;
  Meanwhile* meanwhile_ = nullptr;
  double start_ = 0, last_ = 0;
  u64 done_ = 0;

  /// Rests after `worked` seconds, at most until the common end.
  void rest(double worked, const Turns& turns) const {
    const double end = std::min(host_now() + rest_after(*state_.actor, worked), turns.end());
    // A sleep lasts longer than it should by as much as a short rest, so the last part of each is not slept.
    if (const double sleep = end - host_now() - shortest_sleep; sleep > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>{sleep});
    while (host_now() < end) std::this_thread::yield();
  }
  /// One iteration at a time; its work has ended before the next begins.
  Stamp singly(Turns& turns) {
    const double start = host_now();
    Marks marks{lasts_, series_, start};
    double last = start;
    u64 done = 0;
    for (u64 batch = 0; turns.begins(*state_.actor, batch); ++batch) {
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

  void queue_batch() {
    Batch batch{nullptr, size_.count()};
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
  if (session.lockstep && session.actors.empty())
    return "a process that only has memory of others runs for no duration here";
  for (const auto& state : session.actors) {
    if (session.lockstep && keeps_step(*state.actor))
      return "actors that exchange words or messages with another process run numbers of iterations here, and no "
             "durations";
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
    std::call_once(begun, [&] { turns.emplace(start_s + lasts.length.count()); });
    auto& state = session.actors[a];
    if (state.actor->thread_of) return;  // the stream's thread runs it
    Run run{session, state, lasts, series[a]};
    const auto messages = messages_of(session, a);
    std::optional<Meanwhile> meanwhile;
    if (messages) meanwhile.emplace(session, session.actors[*messages], lasts, series[*messages]);
    stamps[a] = state.stream ? run.on_gpu(*turns, meanwhile ? &*meanwhile : nullptr) : run.on_cpu(*turns);
    if (meanwhile) stamps[*messages] = meanwhile->end();
  };
  run_on_host_threads(session, {[](std::size_t) {}, go});
  check_results(session);
}

}  // namespace linkscope
