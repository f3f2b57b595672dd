#include "platform/cuda/sampling.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/error.hpp"
#include "host/patience.hpp"
#include "platform/cuda/batches.hpp"
#include "platform/cuda/durations.hpp"
#include "platform/cuda/ranks.hpp"
#include "platform/cuda/stamps.hpp"
#include "platform/cuda/steps.hpp"
#include "platform/cuda/verification.hpp"
#include "program/series.hpp"

namespace linkscope {
namespace {

/// Why the host would wait for every call, so that nothing can be queued behind a gate; "" if no reason is known.
std::string reason_against_a_gate() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value && std::string{value} != "0";
  };
  if (set("CUDA_LAUNCH_BLOCKING")) return "CUDA_LAUNCH_BLOCKING is set";
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NV_COMPUTE_PROFILER_PERFWORKS_DIR"})
    if (set(name)) return std::string{"a profiler is attached ("} + name + " is set)";
  return "";
}

/// Limit for queueing while its duration is unknown.
Seconds rehearsal() { return patient(Seconds{0.02}); }

bool rehearsed(const CudaSession& session, const std::vector<u32>& batch) {
  return std::any_of(session.rehearsed.begin(), session.rehearsed.end(),
                     [&](const auto& other) { return within(batch, other); });
}

}  // namespace

Sampling::Sampling(const Driver& driver) : driver_{driver}, no_gate_{reason_against_a_gate()} {}

void Sampling::warm_up(CudaSession& session) {
  const Clocked clocked{session.spent.rehearsals};
  const auto once = rehearsal_batch(session.program, session.program.cache == CacheState::hot);
  std::vector<Stamp> stamps(session.actors.size());
  load_code(session);
  warm_up_messages(session);
  if (session.timing == Timing::gate) {
    if (!rehearse(session, once, stamps.data())) sample_host(session, once, stamps.data());
  } else {
    sample_host(session, once, stamps.data());
  }
  for (std::size_t a = 0; a < stamps.size(); ++a)
    session.expected_loop = std::max(session.expected_loop, Seconds{stamps[a].exit_s - stamps[a].enter_s} / once[a]);
}

/// Whether this batch can be queued behind a closed gate without blocking the host.
bool Sampling::rehearse(CudaSession& session, const std::vector<u32>& batch, Stamp* stamps) {
  // One block may be a hiccup of the host or the allocation of staging memory; a permanent one repeats. The gate waits
  // longer for a host that waited for a CPU. A gate that began late has not waited for a slow host, and proves nothing.
  constexpr Seconds most{10.0};
  Seconds patience = rehearsal();
  bool through = false;
  for (u32 blocks = 0; !through && blocks < 2;) {
    Seconds queueing{0};
    through = sample_gated(session, *gate_, batch, patience, stamps, &queueing) && queueing <= rehearsal();
    if (queueing > rehearsal() || patience > most) ++blocks;
    else patience *= 4;
  }
  (through ? session.rehearsed : session.blocking).push_back(batch);
  return through;
}

void Sampling::choose_timing(CudaSession& session) {
  const auto host = [&](std::string why) {
    session.timing = Timing::host;
    session.why_timing = std::move(why);
  };
  const bool held = session.program.held_by != HeldBy::nothing;
  for (const auto& actor : session.whole.actors)
    if (actor.clock == Clock::host)
      return host("the host's clock was asked for, or its actors are CPU threads or another process's");
  if (session.lockstep) return host("events of one process do not order the work of another");
  for (const auto& actor : session.program.actors) {
    if (!held) continue;
    for (const auto& step : actor.loop) {
      for (const auto& touch : touches(step))
        if (is_pageable(session.program.regions[touch.span.region].kind))
          return host("the driver copies pageable memory on the host, before a gate would open");
    }
  }
  if (!held) {
    session.timing = Timing::events;
    session.why_timing = "nothing holds the streams: the time that queueing takes is in it";
    return;
  }
  if (!no_gate_.empty()) {
    // Without a gate one stream's copies may end before the next one's are queued, so several streams start at a
    // barrier.
    session.timing = session.actors.size() > 1 ? Timing::host : Timing::events;
    session.why_timing = "no gate: " + no_gate_;
    return;
  }
  if (!gate_) gate_ = std::make_unique<Gate>(driver_, *session.actors.front().device);
}

/// Chooses the timing of this order: the host's clock if queueing one of its batches behind a closed gate blocks the
/// host. Staged copies without peer access block from a certain number of bytes in flight. One trial decides, and
/// serves as a rehearsal.
Timing Sampling::timing_of(CudaSession& session, const Order& order) {
  if (order.lasts) return Timing::host;
  if (session.timing != Timing::gate) return session.timing;
  const Clocked clocked{session.spent.rehearsals};
  const auto total = [](const std::vector<u32>& batch) { return std::accumulate(batch.begin(), batch.end(), u32{0}); };
  std::vector<Stamp> unused(session.actors.size());
  auto batches = order.batches;  // the largest batch first: its result holds for smaller ones
  std::sort(batches.begin(), batches.end(), [&](const auto& a, const auto& b) { return total(a) > total(b); });
  for (const auto& batch : batches) {
    const bool hopeless = std::any_of(session.blocking.begin(), session.blocking.end(),
                                      [&](const auto& other) { return within(other, batch); });
    if (hopeless) return Timing::host;  // the two clocks measure different quantities
    if (total(batch) == 0) continue;
    const auto all_memory =
        at_most_footprint(session.program, batch);  // the sample itself shows whether a longer one blocks
    if (rehearsed(session, halved(all_memory))) continue;
    if (!rehearse(session, all_memory, unused.data())) return Timing::host;
  }
  return Timing::gate;
}

/// Takes one sample behind the gate; false if the host was blocked. The batch then counts as rehearsed. A batch that
/// barely passed earlier may block now, because the capacity of a stream varies; from here it counts as blocking.
bool Sampling::gated(CudaSession& session, const std::vector<u32>& batch, Stamp* stamps) {
  const bool known = rehearsed(session, batch);
  const Seconds patience = known ? gate_timeout(session, batch) : rehearsal();
  if (sample_gated(session, *gate_, batch, patience, stamps)) {
    if (!known) session.rehearsed.push_back(batch);
    return true;
  }
  if (known) {
    sample_host(session, batch, stamps);
    // A host that needs half of the patience without a gate would exceed it behind one.
    for (std::size_t a = 0; a < batch.size(); ++a)
      if (stamps[a].exit_s - stamps[a].enter_s > patience.count() / 2)
        throw Error{ErrorKind::timeout, "the host did not finish queueing before the gate's time-out of " +
                                            std::to_string(patience.count()) + " s"};
  }
  rehearse(session, batch, stamps);
  return false;
}

/// Takes the order's samples; false if they must be repeated because a batch was rehearsed or blocked the host.
bool Sampling::take_samples(CudaSession& session, const Order& order, Timing timing, Trace& trace) {
  if (order.lasts) take_durations(session, order, trace);
  std::optional<Stamping> stamping;
  if (order.stamped) stamping.emplace(session, trace.latencies);
  for (u32 sample = 0; sample < order.samples; ++sample)
    for (u32 b = 0; b < order.batches.size(); ++b) {
      const auto& batch = order.batches[b];
      session.settle_caches(batch);
      const Clocked clocked{session.spent.samples};
      Stamp* stamps = &trace.at(sample, b, 0);
      if (timing == Timing::events) sample_events(session, batch, stamps);
      else if (timing == Timing::host) sample_host(session, batch, stamps);
      else if (!gated(session, batch, stamps)) return false;
      if (stamping) stamping->collect(batch);
    }
  return true;
}

namespace {

/// The time in which the actors of all processes ran: their clock is the same.
Window common_time_of_all(const CudaSession& session, Window window, const Duration& lasts) {
  const char* what = "the end of a sample";
  const Seconds patience = session.patience() + lasts.length;
  const Window own = window;
  for (u32 other = 0; other < session.peers->processes(); ++other)
    if (other != session.process) session.peers->give(other, own, -1, what);
  for (u32 other = 0; other < session.peers->processes(); ++other)
    if (other != session.process) window = common_time(window, session.peers->take<Window>(other, what, patience));
  return window;
}

}  // namespace

void Sampling::take_durations(CudaSession& session, const Order& order, Trace& trace) {
  if (session.lockstep && session.peers->on_several_hosts())
    throw Error{ErrorKind::unsupported,
                "processes on several hosts have no common clock, so they run numbers of iterations and no durations"};
  if (const auto why = why_no_duration(session); !why.empty()) throw Error{ErrorKind::usage, why};
  for (u32 sample = 0; sample < order.samples; ++sample) {
    const Clocked clocked{session.spent.samples};
    const std::size_t first = std::size_t{sample} * trace.actors;  // a process of several may have no actor
    const std::span actors{trace.series.data() + first, trace.actors};
    if (session.lockstep) session.peers->meet("the start of a sample", session.patience());
    sample_duration(session, *order.lasts, trace.stamps.data() + first, actors.data());
    Window& window = trace.windows[sample];
    window = common_time(actors);
    if (session.lockstep) window = common_time_of_all(session, window, *order.lasts);
    add_intervals(session.program, *order.lasts, actors, window);
  }
}

Trace Sampling::run(CudaSession& session, const Order& order) {
  Trace trace;
  trace.make_room(order, session.actors.size());
  const auto compared = [&session] {
    const Clocked clocked{session.spent.comparing};
    return verify(session);
  };
  Verdict before;
  const bool once = changes_inputs(session.whole);  // further iterations have other results
  if (order.verify && session.sampled && !once) before = compared();
  Timing timing;
  do {
    timing = timing_of(session, order);
    // Compares with fresh poison: earlier deliveries, such as those of warm-up and rehearsals, do not prove that these
    // samples deliver.
    if (order.verify || !session.sampled) session.start_afresh();
  } while (!take_samples(session, order, timing, trace));
  session.sampled = true;
  trace.timing = timing == Timing::gate ? "gate" : timing == Timing::events ? "events" : "host";
  if (order.verify && once) {
    session.start_afresh();
    std::vector<Stamp> unused(session.actors.size());
    sample_host(session, std::vector<u32>(session.actors.size(), 1), unused.data());
  }
  if (order.verify) trace.verdict = both(before, compared());
  trace.notes = session.notes;
  if (timing != session.timing && !order.lasts)
    trace.notes.emplace_back("timing", "queueing so many copies waits for the gate");
  return trace;
}

}  // namespace linkscope
