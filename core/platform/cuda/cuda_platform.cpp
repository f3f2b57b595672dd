#include "platform/cuda/cuda_platform.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "gpu/devices.hpp"
#include "host/flush.hpp"
#include "host/topology.hpp"
#include "platform/cuda/batches.hpp"
#include "platform/cuda/caller.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/device_code.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/regions.hpp"
#include "platform/cuda/steps.hpp"
#include "platform/cuda/supports.hpp"
#include "platform/cuda/verification.hpp"
#include "program/allocation.hpp"
#include "program/managed.hpp"
#include "program/processes.hpp"

namespace linkscope {
namespace {

/// Why the host would wait for every call, so that nothing can be queued behind a gate; "" if no reason is known.
std::string why_no_gate() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value && std::string{value} != "0";
  };
  if (set("CUDA_LAUNCH_BLOCKING")) return "CUDA_LAUNCH_BLOCKING is set";
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NV_COMPUTE_PROFILER_PERFWORKS_DIR"})
    if (set(name)) return std::string{"a profiler is attached ("} + name + " is set)";
  return "";
}

class CudaPlatformImpl final : public CudaPlatform {
 public:
  explicit CudaPlatformImpl(const std::vector<Wanted>& most)
      : offer_{driver_, facts_, [this](u32 gpu) { return device(gpu).free_bytes(); },
               [this](const Program& program) { return why_not_shared(program); }},
        no_gate_{why_no_gate()},
        buffers_{driver_, most} {
    facts_.present = driver_.usable();
    facts_.version = driver_.version();
    facts_.why_not = driver_.why_not();
    facts_.gpus = devices_.facts();
    facts_.peers = list_peers(driver_, facts_.gpus);
    facts_.missing = driver_.missing();
  }

  [[nodiscard]] const DriverFacts& facts() const override { return facts_; }
  [[nodiscard]] std::vector<ContextsMade> make_contexts(const std::vector<u32>& gpus, const Floors&) override;
  void join(u32 process, u32 processes, const std::string& meeting) override;
  [[nodiscard]] Support supports(const Program& program) const override { return offer_.supports(program); }
  [[nodiscard]] std::unique_ptr<Session> prepare(const Program&, const std::string& key) override;
  [[nodiscard]] Trace run(Session&, const Order&) override;

 private:
  Device& device(u32 index) { return devices_.at(index); }
  std::optional<Seconds> context_anew(u32 gpu);
  [[nodiscard]] std::string why_not_shared(const Program&) const;
  void set_peers(const Program&);
  void prepare_part(CudaSession&);
  void make_actors(CudaSession&);
  void choose_timing(CudaSession&);
  void warm_up(CudaSession&);
  bool rehearse(CudaSession&, const std::vector<u32>& batch, Stamp* stamps);
  bool gated(CudaSession&, const std::vector<u32>& batch, Stamp* stamps);
  bool take_samples(CudaSession&, const Order&, Timing, Trace&);
  Timing timing_of(CudaSession&, const Order&);
  Trace run_part(CudaSession&, const Order&);

  Driver driver_;
  DriverFacts facts_;
  Offer offer_;
  std::string no_gate_;
  Devices devices_{driver_, embedded_code()};
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Peers> peers_;                   // the other processes; null before join()
  std::map<std::string, std::string> not_shared_;  // by openings: the reason why they failed
  Buffers buffers_;                                // declared after the devices, so that the buffers are freed first
  std::set<std::pair<u32, u32>> peers_on_;
};

// --- prepare ------------------------------------------------------------------------------------------------------

/// The cost of an operation in a new context. Nothing on failure: the points of that GPU report the cause, and other
/// GPUs are measured.
std::optional<Seconds> CudaPlatformImpl::context_anew(u32 gpu) {
  devices_.close(gpu);
  try {
    return operation_cost(driver_, device(gpu));
  } catch (const Error&) {
    devices_.close(gpu);
    return {};
  }
}

std::vector<ContextsMade> CudaPlatformImpl::make_contexts(const std::vector<u32>& gpus, const Floors& floors) {
  if (!no_gate_.empty()) return {};
  std::vector<ContextsMade> made;
  std::vector<ContextMaker> makers;
  for (const u32 gpu : gpus) {
    if (gpu >= facts_.gpus.size()) throw Error{ErrorKind::usage, "there is no gpu:" + std::to_string(gpu)};
    if (facts_.gpus[gpu].attribute("COMPUTE_MODE", CU_COMPUTEMODE_DEFAULT) != CU_COMPUTEMODE_DEFAULT) continue;
    made.push_back({gpu, {}});
    makers.push_back({facts_.gpus[gpu].name, [this, gpu] { return context_anew(gpu); }});
  }
  auto costs = make_contexts_alike(makers, floors);
  for (std::size_t i = 0; i < made.size(); ++i) made[i].costs = std::move(costs[i]);
  std::erase_if(made, [](const ContextsMade& of) { return of.costs.empty(); });
  return made;
}

void CudaPlatformImpl::join(u32 process, u32 processes, const std::string& meeting) {
  peers_.reset();
  peers_ = std::make_unique<Peers>(process, processes, meeting);
}

std::string CudaPlatformImpl::why_not_shared(const Program& program) const {
  const auto found = not_shared_.find(openings_text(program));
  return found == not_shared_.end() ? "" : found->second;
}

void CudaPlatformImpl::set_peers(const Program& program) {
  if (peer_pairs(program).empty()) return;  // nothing moves between GPUs, so the setting costs nothing
  const auto gpus = gpus_of(program);
  for (const u32 from : gpus)
    for (const u32 to : gpus) {
      if (from == to || peers_on_.contains({from, to}) == program.peer || !can_access(facts_, from, to)) continue;
      auto& target = device(to);
      device(from).use();
      if (program.peer) {
        LINKSCOPE_CU(driver_, cuCtxEnablePeerAccess, target.context(), 0);
        peers_on_.insert({from, to});
      } else {
        LINKSCOPE_CU(driver_, cuCtxDisablePeerAccess, target.context());
        peers_on_.erase({from, to});
      }
    }
}

void CudaPlatformImpl::make_actors(CudaSession& session) {
  std::map<u32, std::size_t> streams;
  for (const auto& actor : session.program.actors) {
    ActorState state;
    state.actor = &actor;
    if (actor.kind == ActorKind::stream) {
      state.device = &device(actor.place.index);
      const int nearest = node_of_pci_device(state.device->facts().pci);
      state.node = actor.cpu ? actor.cpu->index : nearest < 0 ? 0 : static_cast<u32>(nearest);
      state.stream = &state.device->stream(1 + streams[actor.place.index]++);  // stream 0 is for untimed work
      state.device->use();
      state.enter = std::make_unique<Event>(driver_);
      state.exit = std::make_unique<Event>(driver_);
      for (const auto& step : actor.loop) {
        const auto* move = std::get_if<Move>(&step);
        if (!move || !move->by || state.helpers.contains(move->by->index)) continue;
        Helper& helper = state.helpers[move->by->index];
        helper.device = &device(move->by->index);
        helper.stream = &helper.device->stream(1 + streams[move->by->index]++);
        state.device->use();
        helper.before = std::make_unique<Event>(driver_, CU_EVENT_DISABLE_TIMING);
        helper.device->use();
        helper.after = std::make_unique<Event>(driver_, CU_EVENT_DISABLE_TIMING);
      }
    } else {
      state.node = actor.place.index;
      if (makes_calls(actor)) {
        const u32 index = std::get<Call>(actor.loop.front()).on->index;
        state.caller =
            std::make_shared<Caller>(session, actor, device(index), device(index).stream(1 + streams[index]++));
      }
    }
    session.actors.push_back(std::move(state));
  }
  choose_executors(session);
  for (auto& state : session.actors) start_results(session, state);
  prepare_managed(session);
}

constexpr Seconds rehearsal{0.02};  // limit for queueing while its duration is unknown

bool rehearsed(const CudaSession& session, const std::vector<u32>& batch) {
  return std::any_of(session.rehearsed.begin(), session.rehearsed.end(),
                     [&](const auto& other) { return within(batch, other); });
}

/// Runs every actor's loop once, over all memory if caches are to be hot: this loads code, allocates staging memory and
/// gives the time of an iteration. Behind a gate if one will be used, because large copies are too expensive for
/// another rehearsal.
void CudaPlatformImpl::warm_up(CudaSession& session) {
  const Clocked clocked{session.spent.rehearsals};
  std::vector<u32> once;
  for (const auto& actor : session.program.actors)
    once.push_back(session.program.cache == CacheState::hot ? whole_footprint(actor) : 1);
  std::vector<Stamp> stamps(session.actors.size());
  load_code(session);
  if (session.timing == Timing::gate) {
    if (!rehearse(session, once, stamps.data())) sample_host(session, once, stamps.data());
  } else {
    sample_host(session, once, stamps.data());
  }
  for (std::size_t a = 0; a < stamps.size(); ++a)
    session.expected_loop = std::max(session.expected_loop, Seconds{stamps[a].exit_s - stamps[a].enter_s} / once[a]);
}

/// Whether this batch can be queued behind a closed gate without blocking the host.
bool CudaPlatformImpl::rehearse(CudaSession& session, const std::vector<u32>& batch, Stamp* stamps) {
  // One block may be a hiccup of the host or the allocation of staging memory; a permanent one repeats.
  const bool through = sample_gated(session, *gate_, batch, rehearsal, stamps) ||
                       sample_gated(session, *gate_, batch, rehearsal, stamps);
  (through ? session.rehearsed : session.blocking).push_back(batch);
  return through;
}

void CudaPlatformImpl::choose_timing(CudaSession& session) {
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
Timing CudaPlatformImpl::timing_of(CudaSession& session, const Order& order) {
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

std::unique_ptr<Session> CudaPlatformImpl::prepare(const Program& program, const std::string&) {
  const bool alone = processes_of(program) == 1;
  if (!alone && (!peers_ || peers_->ended() || peers_->processes() != processes_of(program)))
    throw Error{ErrorKind::usage, "the processes of the program have not joined each other"};
  auto session = std::make_unique<CudaSession>(driver_, alone ? nullptr : peers_.get(), program);
  try {
    if (const auto support = supports(program); !support) throw Error{ErrorKind::unsupported, support.why_not};
    prepare_part(*session);
  } catch (const Error& error) {
    if (!alone) peers_->fail(error);
    if (!alone && error.kind() == ErrorKind::unsupported) not_shared_[openings_text(program)] = error.what();
    throw;
  }
  return session;
}

void CudaPlatformImpl::prepare_part(CudaSession& session) {
  if (session.acts) set_peers(session.program);
  if (managed_bytes(session.program) > 0)
    for (const u32 index : gpus_of(session.program)) session.gpus.emplace_back(index, &device(index));
  {
    const Clocked clocked{session.spent.memory};
    make_buffers(session, buffers_, devices_);
    if (!session.acts) return;
    make_actors(session);
  }
  if (!session.actors.empty()) bind_thread_to_node(session.actors.front().node);
  choose_timing(session);
  warm_up(session);
  if (!session.why_timing.empty()) session.notes.emplace_back("timing", session.why_timing);
  if (session.program.cache == CacheState::cold)
    session.notes.emplace_back("cpu_cache_flush", cache_flush_instruction());
}

// --- run ----------------------------------------------------------------------------------------------------------

/// Takes one sample behind the gate; false if the host was blocked. The batch then counts as rehearsed. A batch that
/// barely passed earlier may block now, because the capacity of a stream varies; from here it counts as blocking.
bool CudaPlatformImpl::gated(CudaSession& session, const std::vector<u32>& batch, Stamp* stamps) {
  const bool known = rehearsed(session, batch);
  const Seconds patience = known ? gate_timeout(session, batch) : rehearsal;
  if (sample_gated(session, *gate_, batch, patience, stamps)) {
    if (!known) session.rehearsed.push_back(batch);
    return true;
  }
  if (!known) {
    rehearse(session, batch, stamps);
    return false;
  }
  sample_host(session, batch, stamps);
  // A host that needs half of the patience without a gate would exceed it behind one.
  for (std::size_t a = 0; a < batch.size(); ++a)
    if (stamps[a].exit_s - stamps[a].enter_s > patience.count() / 2)
      throw Error{ErrorKind::timeout, "the host did not finish queueing before the gate's time-out of " +
                                          std::to_string(patience.count()) + " s"};
  // One block may be a hiccup of the host; a permanent one repeats.
  if (!sample_gated(session, *gate_, batch, rehearsal, stamps)) session.blocking.push_back(batch);
  return false;
}

/// Takes the order's samples; false if they must be repeated because a batch was rehearsed or blocked the host.
bool CudaPlatformImpl::take_samples(CudaSession& session, const Order& order, Timing timing, Trace& trace) {
  for (u32 sample = 0; sample < order.samples; ++sample)
    for (u32 b = 0; b < trace.batches; ++b) {
      const auto& batch = order.batches[b];
      session.settle_caches(batch);
      const Clocked clocked{session.spent.samples};
      Stamp* stamps = &trace.at(sample, b, 0);
      if (timing == Timing::events) sample_events(session, batch, stamps);
      else if (timing == Timing::host) sample_host(session, batch, stamps);
      else if (!gated(session, batch, stamps)) return false;
    }
  return true;
}

Trace CudaPlatformImpl::run(Session& base, const Order& order) {
  auto& session = static_cast<CudaSession&>(base);
  check_iterations(session.whole, order);
  try {
    auto trace = run_part(session, part_of(session.whole, order, session.process));
    if (session.peers) session.peers->check_alive();  // otherwise memory without an owner would be measured
    return among_all(session.whole, std::move(trace), session.process);
  } catch (const Error& error) {
    if (session.peers) session.peers->fail(error);
    throw;
  }
}

Trace CudaPlatformImpl::run_part(CudaSession& session, const Order& order) {
  Trace trace;
  trace.samples = order.samples;
  trace.batches = static_cast<u32>(order.batches.size());
  trace.actors = static_cast<u32>(session.actors.size());
  trace.stamps.resize(std::size_t{trace.samples} * trace.batches * trace.actors);
  const auto compared = [&session] {
    const Clocked clocked{session.spent.comparing};
    return verify(session);
  };
  Verdict before;
  if (order.verify && session.sampled) before = compared();
  Timing timing;
  do {
    timing = timing_of(session, order);
    // Compares with fresh poison: earlier deliveries, such as those of warm-up and rehearsals, do not prove that these
    // samples deliver.
    if (order.verify || !session.sampled) session.start_afresh();
  } while (!take_samples(session, order, timing, trace));
  session.sampled = true;
  trace.timing = timing == Timing::gate ? "gate" : timing == Timing::events ? "events" : "host";
  if (order.verify) trace.verdict = both(before, compared());
  trace.notes = session.notes;
  if (timing != session.timing) trace.notes.emplace_back("timing", "queueing so many copies waits for the gate");
  return trace;
}

}  // namespace

std::unique_ptr<CudaPlatform> make_cuda(const std::vector<Wanted>& most) {
  return std::make_unique<CudaPlatformImpl>(most);
}

}  // namespace linkscope
