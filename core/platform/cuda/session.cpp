#include "platform/cuda/session.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "gpu/device_work.hpp"
#include "host/cpu_wait.hpp"
#include "host/dirty.hpp"
#include "host/flush.hpp"
#include "host/parallel.hpp"
#include "host/patience.hpp"
#include "host/topology.hpp"
#include "platform/cuda/caller.hpp"
#include "platform/cuda/collectives.hpp"
#include "platform/cuda/contents.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/cuda/sharing.hpp"
#include "platform/cuda/steps.hpp"
#include "program/processes.hpp"

namespace linkscope {
double host_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

namespace {

bool on_host(const Buffer& buffer) { return buffer.host() != nullptr; }

}  // namespace

// --- session ------------------------------------------------------------------------------------------------------

namespace {

Program with_patience(Program program) {
  for (auto& actor : program.actors)
    for (auto* steps : {&actor.once, &actor.loop})
      for (auto& step : *steps) {
        if (auto* wait = std::get_if<Wait>(&step)) wait->timeout = patient(wait->timeout);
        if (auto* collective = std::get_if<Collective>(&step)) collective->timeout = patient(collective->timeout);
      }
  return program;
}

}  // namespace

CudaSession::CudaSession(const Driver& d, Peers* p, const MpiWorld* m, const Program& all)
    : driver{d},
      peers{p},
      mpi{m},
      process{p ? p->process() : 0},
      whole{all},
      program{with_patience(part_of(all, process))},
      lockstep{p && in_lockstep(all)} {
  acts = linkscope::acts(all, process);
}

CudaSession::~CudaSession() {
  free_grids(*this);
  close_memory_of_others(*this);
}

Seconds CudaSession::patience() const {
  constexpr double slowest_rate = 0.2e9;
  u64 bytes = 0;
  for (const auto& region : whole.regions) bytes += region.bytes;
  return patient(Seconds{6.0}) + Seconds{static_cast<double>(bytes) / slowest_rate};  // a driver that starts takes 3 s
}

void CudaSession::reset_destinations() const {
  std::vector<DeviceWork> work;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i] || filler_of(whole, static_cast<u32>(i)) != process) continue;
    const auto content = program.regions[i].content;
    if (content == Content::changing)
      work.push_back({buffers[i]->device(), [buffer = buffers[i]] { buffer->fill_with_pattern(buffer->seed()); }});
    if (content != Content::poison && content != Content::zero) continue;
    const std::byte with = content == Content::poison ? poison : std::byte{0};
    work.push_back({buffers[i]->device(),
                    [buffer = buffers[i], bytes = program.regions[i].bytes, with] { buffer->fill_with(with, bytes); }});
  }
  side_by_side(work);
}

CUdeviceptr CudaSession::address(u32 region, const Device& by) const {
  const auto own = opened.find({region, &by});
  return own == opened.end() ? buffers[region]->address() : own->second->address();
}

void CudaSession::start_afresh() {
  if (lockstep) peers->meet("it to compare its memory", patience());
  const Clocked clocked{spent.comparing};
  reset_destinations();
  restore_managed(*this);
  for (std::size_t a = 0; a < actors.size(); ++a) {
    actors[a].iteration = 0;
    actors[a].position = nullptr;
    actors[a].sum = 0;
    start_results(*this, actors[a]);
  }
}

namespace {

/// Calls `act` with the start and the bytes of the slices that the next `count` iterations access, with the gaps between
/// them: one range, or two where the last slice is followed by the first.
template <class Act>
void with_next_slices(const Buffer& buffer, const Span& span, u64 iteration, u64 count, Act act) {
  const u64 first = iteration % span.slices, end = first + std::min<u64>(count, span.slices);
  const auto range = [&](u64 from, u64 to) {
    act(buffer.host() + span.offset + from * span.stride, (to - from) * span.stride);
  };
  range(first, std::min<u64>(end, span.slices));
  if (end > span.slices) range(0, end - span.slices);
}

void flush(std::byte* start, u64 bytes) {
  parallel_ranges(bytes, 4096, [&](u64 begin, u64 stop) { flush_cpu_caches(start + begin, stop - begin); });
}

/// Gives pages back to the kernel, so that the next store to each page causes a page fault again.
void give_back(std::byte* start, u64 bytes) {
  if (madvise(start, bytes, MADV_DONTNEED) != 0)
    throw Error{ErrorKind::failed, std::string{"the kernel does not take pages back: "} + std::strerror(errno)};
}

}  // namespace

void CudaSession::settle_caches(const std::vector<u32>& batch) {
  if (program.cache == CacheState::hot) return;
  const Clocked clocked{spent.caches};
  static const u64 host_cache = last_level_cache_bytes();
  const auto l2 = [](const Device& device) { return static_cast<u64>(device.facts().attribute("L2_CACHE_SIZE", 0)); };
  std::set<Device*> gpus;
  for (std::size_t a = 0; a < actors.size(); ++a) {
    if (batch[a] == 0) continue;  // accesses nothing
    for (const auto& step : actors[a].actor->loop) {
      const auto* move = std::get_if<Move>(&step);
      for (const auto& [span, writes] : touches(step)) {
        const Buffer& buffer = *buffers[span.region];
        // A footprint of three caches evicts itself; a smaller one is flushed, but only what the batch will access.
        const u64 footprint =
            span.slices * (span.rows.bytes ? span.bytes : span.stride);  // memory between rows evicts nothing
        if (buffer.kind() == MemKind::file) {
          buffer.memory().file().evict();
        } else if (program.cache == CacheState::fresh && writes && is_pageable(buffer.kind())) {
          with_next_slices(buffer, span, actors[a].iteration, u64{batch[a]} * program.passes, give_back);
        } else if (on_host(buffer) && once_only(program.cache) && program.cache != CacheState::fresh) {
          std::byte* start = buffer.host() + span.offset;
          if (program.cache != CacheState::dirty) write_again(start, footprint);
          if (program.cache == CacheState::cleaned) write_back_cpu_caches(start, footprint);
          if (program.cache == CacheState::dirty)
            dirty_in_another_core(start, footprint, program.regions[span.region].at.index);
        } else if (on_host(buffer) && footprint < 3 * host_cache) {
          // Memory that only a GPU reads is flushed once: reading brings nothing back into a CPU's cache, writing may.
          const bool by_cpu = !actors[a].stream || is_pageable(buffer.kind());
          const u64 count = u64{batch[a]} * program.passes;
          if (writes || by_cpu) with_next_slices(buffer, span, actors[a].iteration, count, flush);
          else if (flushed_.insert(span.region).second) with_next_slices(buffer, span, 0, span.slices, flush);
        }
        if (!on_host(buffer) && footprint < 3 * l2(*buffer.device())) gpus.insert(buffer.device());
        // A GPU's L2 also holds what its threads read elsewhere.
        const bool by_sm = actors[a].device && !(move && by_copy_engine(move->engine));
        if (by_sm && footprint < 3 * l2(*actors[a].device)) gpus.insert(actors[a].device);
      }
    }
  }
  for (Device* device : gpus) {
    device->use();
    device->flush_l2(device->stream(0).get());
  }
  for (Device* device : gpus) {
    device->use();
    device->stream(0).synchronize();
  }
}

// --- timing -------------------------------------------------------------------------------------------------------

namespace {

/// Idles for that long. The thread polls the clock, because a sleeping thread and its core would have to wake up within
/// the next measurement.
void idle(Seconds gap) {
  const double end = host_now() + std::min(gap, longest_idle).count();
  while (gap > Seconds{0} && host_now() < end) {
  }
}

}  // namespace

void make_ready(CudaSession& session, const std::vector<u32>& batch) {
  bring_home(session);
  for (std::size_t a = 0; a < session.actors.size(); ++a) {
    prepare_together(session, session.actors[a], batch[a]);
    if (const auto& caller = session.actors[a].caller) caller->ready(batch[a]);
  }
  if (std::any_of(batch.begin(), batch.end(), [](u32 count) { return count > 0; })) idle(session.program.idle);
}

namespace {

void queue_loops(CudaSession& session, const std::vector<u32>& batch) {
  for (std::size_t a = 0; a < session.actors.size(); ++a) {
    auto& state = session.actors[a];
    if (state.leader) continue;
    state.device->use();
    LINKSCOPE_CU(session.driver, cuEventRecord, state.enter->get(), state.stream->get());
    state.loop(session, state, batch[a]);
    LINKSCOPE_CU(session.driver, cuEventRecord, state.exit->get(), state.stream->get());
  }
}

void drain(CudaSession& session) {
  for (auto& state : session.actors) {
    state.device->use();
    state.stream->synchronize();
    for (auto& [gpu, helper] : state.helpers) {
      helper.device->use();
      helper.stream->synchronize();
    }
  }
}

/// Leaves nothing in flight, also after an error while queueing, because queued work may still write.
struct Drained {
  CudaSession& session;
  ~Drained() {
    try {
      drain(session);
    } catch (const Error&) {  // the error is reported already; after success the caller checks again
    }
  }
};

void queue_behind(CudaSession& session, const Gate& gate, const std::vector<u32>& batch, Seconds timeout) {
  for (auto& state : session.actors) {
    if (state.leader) continue;
    state.device->use();
    gate.queue(*state.device, state.stream->get(), session.program.held_by, timeout);
  }
  queue_loops(session, batch);
}

/// Event times count from the first actor's start on the same GPU, because events of different GPUs share no clock.
void read_events(CudaSession& session, Stamp* stamps) {
  for (std::size_t a = 0; a < session.actors.size(); ++a) {
    auto& state = session.actors[a];
    if (state.leader) continue;
    const auto first = std::find_if(session.actors.begin(), session.actors.end(),
                                    [&](const auto& other) { return other.device == state.device; });
    state.device->use();
    float enter = 0, exit = 0;
    if (&*first != &state)
      LINKSCOPE_CU(session.driver, cuEventElapsedTime, &enter, first->enter->get(), state.enter->get());
    LINKSCOPE_CU(session.driver, cuEventElapsedTime, &exit, state.enter->get(), state.exit->get());
    const double enter_s = static_cast<double>(enter) * 1e-3;
    stamps[a] = {enter_s, enter_s + static_cast<double>(exit) * 1e-3};
  }
  follow_leaders(session, stamps);
}

}  // namespace

void place_thread(const ActorState& state) {
  if (!state.cpus.empty()) bind_thread_to_cpus(state.cpus);
  else if (state.actor->bound) bind_thread_to_node(state.node);
  else release_thread();
}

Seconds gate_timeout(const CudaSession& session, const std::vector<u32>& batch) {
  return patient(Seconds{2.0}) + 5.0 * session.expected_loop * *std::max_element(batch.begin(), batch.end());
}

bool sample_gated(CudaSession& session, const Gate& gate, const std::vector<u32>& batch, Seconds patience,
                  Stamp* stamps, Seconds* queueing) {
  make_ready(session, batch);
  {
    const Drained drained{session};
    const GateKeeper keeper{gate, session.program.held_by, patience};
    const auto clock = queueing ? std::optional<OwnClock>{std::in_place} : std::nullopt;
    queue_behind(session, gate, batch, patience);
    if (queueing) *queueing = clock->elapsed();
  }
  drain(session);
  if (gate.timed_out()) return false;
  check_results(session);
  read_events(session, stamps);
  return true;
}

void sample_events(CudaSession& session, const std::vector<u32>& batch, Stamp* stamps) {
  make_ready(session, batch);
  queue_loops(session, batch);
  drain(session);
  check_results(session);
  read_events(session, stamps);
}

namespace {

/// The others' actors may take as long as this process's, with waits that give up.
Seconds end_patience(const CudaSession& session, const std::vector<u32>& batch) {
  const u32 most = batch.empty() ? 0 : *std::max_element(batch.begin(), batch.end());
  return session.patience() + 10.0 * session.expected_loop * most;
}

/// Of several errors, the first that is not a wait for another actor.
void rethrow(const std::vector<std::exception_ptr>& failures) {
  std::exception_ptr first;
  for (const auto& failure : failures) {
    if (!failure) continue;
    if (!first) first = failure;
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout) throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace

void follow_leaders(CudaSession& session, Stamp* stamps) {
  for (std::size_t a = 0; a < session.actors.size(); ++a) {
    auto& state = session.actors[a];
    if (!state.leader) continue;
    state.iteration = session.actors[*state.leader].iteration;
    stamps[a] = stamps[*state.leader];
  }
}

void check_results(const CudaSession& session) {
  check_collectives(session);
  check_waits(session);
  check_turns(session);
}

void run_on_host_threads(CudaSession& session, const HostThreads& threads_of) {
  double begun = 0;  // the common start; a thread may read its clock later
  std::vector<std::exception_ptr> failures(session.actors.size() + 1);
  const auto all_processes = [&]() noexcept {
    try {
      if (session.lockstep) session.peers->start_together();
    } catch (...) {
      failures.back() = std::current_exception();
    }
    begun = host_now();
  };
  std::barrier start{std::max<std::ptrdiff_t>(1, std::ssize(session.actors)), all_processes};
  const auto run_actor = [&](std::size_t a) {
    auto& state = session.actors[a];
    bool started = false;
    try {
      place_thread(state);
      if (state.device) state.device->use();
      threads_of.ready(a);
      start.arrive_and_wait();
      started = true;
      threads_of.go(a, begun);
    } catch (...) {
      failures[a] = std::current_exception();
      if (!started) start.arrive_and_drop();  // otherwise the others would wait for ever
    }
  };
  if (session.actors.empty()) {
    start.arrive_and_wait();
  } else {
    std::vector<std::jthread> threads;
    for (std::size_t a = 1; a < session.actors.size(); ++a) threads.emplace_back(run_actor, a);
    run_actor(0);
  }
  rethrow(failures);
}

void sample_host(CudaSession& session, const std::vector<u32>& batch, Stamp* stamps) {
  make_ready(session, batch);
  if (session.lockstep) session.peers->meet("the start of a sample", session.patience());
  const auto ready = [&](std::size_t a) {
    if (session.actors[a].caller) session.actors[a].caller->enter();
  };
  const auto watch = watch_collectives(session, batch);
  const auto go = [&](std::size_t a, double) {
    auto& state = session.actors[a];
    if (state.leader) return;
    const double enter = host_now();
    state.loop(session, state, batch[a]);
    if (state.stream) state.stream->synchronize();
    stamps[a] = {enter, host_now()};
  };
  run_on_host_threads(session, {ready, go});
  follow_leaders(session, stamps);
  for (const auto& state : session.actors)
    if (state.caller) state.caller->settle();
  check_results(session);
  if (session.lockstep) session.peers->meet("the end of a sample", end_patience(session, batch));
}

}  // namespace linkscope
