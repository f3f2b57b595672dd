#include "platform/sim/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace linkscope::sim {
namespace {

u64 chunk_size(const Op& op, u64 chunk) {
  return chunk % op.chunks == op.chunks - 1 ? op.bytes - op.chunk_bytes * (op.chunks - 1) : op.chunk_bytes;
}

/// Host seconds for queueing it that many times.
double queueing(const Op& op, u32 iterations) {
  return op.calls ? op.queue * op.calls * iterations : op.queue + op.queue_copy * op.chunks * iterations;
}

double on_tick(double time, double tick) { return tick > 0 ? std::floor(time / tick) * tick : time; }

}  // namespace

Simulation::Simulation(const Machine& machine, const Servers& servers, std::vector<double> capacities,
                       const Lanes& lanes, sim::Memory& memory)
    : machine_{machine},
      lanes_{lanes.lanes},
      passes_{lanes.passes},
      memory_{memory},
      fluid_{std::move(capacities)},
      running_(lanes.lanes.size()),
      carried_(lanes.stages),
      pages_{lanes, machine},
      words_{lanes} {
  for (const u32 count : servers.counts(lanes.processes))
    servers_.push_back({.free = count, .moves = false, .waiting = {}});
  for (const u32 gpu : lanes.shared_gpus()) shared_.push_back({.gpu = gpu});
  for (const auto& lane : lanes_) common_.resize(std::max<std::size_t>(common_.size(), lane.pair + 1));
}

/// Everything before the loops.
void Simulation::start_afresh(std::span<const Factors> factors) {
  now_ = 0;
  until_.reset();
  fluid_.rewind();
  words_.start_afresh();
  for (auto& gpu : shared_) gpu.active = nobody;
  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    running_[lane].factors = factors[lane];
    running_[lane].latencies = nullptr;
    begin(lane, lanes_[lane].once, 1);
  }
  run_to_end();
}

void Simulation::sample(std::span<const u32> iterations, std::span<const Factors> factors, double tick_phase,
                        Stamp* stamps, Latencies* latencies) {
  start_afresh(factors);
  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    running_[lane].latencies = latencies && leads(lane) ? &latencies[lane] : nullptr;
    running_[lane].begun.reset();
  }

  // One host thread closes the gate, queues everything behind it and opens it; actors on the host start then.
  double queued = 0;
  for (u32 lane = 0; lane < lanes_.size(); ++lane)
    if (lanes_[lane].by_event && iterations[lane] > 0 && leads(lane))
      for (const auto& op : lanes_[lane].loop) queued += queueing(op, iterations[lane]);
  now_ += machine_.costs.launch + queued;
  // Streams that nothing holds are queued one after the other: event, loop, event, a call each.
  const auto pace = [&](u32 lane) { return factors[lane].host * factors[lane].slow; };
  const auto all_queued = [&](u32 lane) {
    double time = 0;
    for (const auto& op : lanes_[lane].loop)
      time += iterations[lane] > 0 ? queueing(op, iterations[lane]) * pace(lane) : 0;
    return time;
  };
  double before = 0;
  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    begin(lane, lanes_[lane].loop, iterations[lane] * passes_,
          leads(lane) ? before : running_[lanes_[lane].leader].start - now_);
    if (!lanes_[lane].by_event || lanes_[lane].held || !leads(lane)) continue;
    const double call = machine_.costs.call * pace(lane);
    if (lanes_[lane].waits) run_to_end();
    before = lanes_[lane].waits ? 2 * call : before + all_queued(lane) + 2 * call;
  }
  run_to_end();

  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    const auto& running = running_[lane];
    stamps[lane] = {running.start, running.end + lanes_[lane].closing};
    if (!lanes_[lane].by_event) continue;
    if (!lanes_[lane].held) {
      const double last_event = running.start + all_queued(lane) + machine_.costs.call * pace(lane);
      stamps[lane].exit_s = std::max(stamps[lane].exit_s, last_event + lanes_[lane].closing);
    }
    const double tick = machine_.costs.event_tick;
    for (double* stamp : {&stamps[lane].enter_s, &stamps[lane].exit_s}) *stamp = on_tick(*stamp + tick_phase, tick);
  }
  stamp_grids(stamps);
}

/// A kernel ends with the last of its blocks.
void Simulation::stamp_grids(Stamp* stamps) const {
  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    double& end = stamps[lanes_[lane].leader].exit_s;
    end = std::max(end, stamps[lane].exit_s);
  }
  for (u32 lane = 0; lane < lanes_.size(); ++lane) stamps[lane] = stamps[lanes_[lane].leader];
}

std::vector<u64> Simulation::take_carried() { return std::exchange(carried_, std::vector<u64>(carried_.size())); }

void Simulation::run_to_end() {
  for (;;) {
    for (auto& gpu : shared_) schedule(gpu);  // after everything that happens at this instant
    const double timer = timers_.empty() ? never : timers_.back().at, flow = fluid_.next_end();
    if (timer == never && flow == never) {
      if (const auto* stuck = words_.stuck())
        throw Error{ErrorKind::timeout, stuck->flag->what + " to become " + std::to_string(stuck->value) +
                                            ": the value that the other side sets does not arrive"};
      return;
    }
    if (flow <= timer) {
      now_ = flow;
      chunk_done(fluid_.finish());
    } else {
      now_ = timer;
      const u32 runner = timers_.back().runner;
      timers_.pop_back();
      if (lane_of(runner) < lanes_.size()) proceed(runner);
      else begin_slice(shared_[runner - 2 * lanes_.size()]);
    }
  }
}

void Simulation::begin(u32 lane, const std::vector<Op>& ops, u32 iterations, double after) {
  auto& running = running_[lane];
  running.ops = &ops;
  running.op = running.iteration = 0;
  running.iterations = iterations;
  running.queued = 0;
  running.channel = lanes_[lane].after_kernel ? Channel::compute : Channel::none;
  running.start = running.end = running.works_from = now_ + after;
  running.busy = 0;
  if (iterations > 0 && !ops.empty()) begin_op(lane);
}

void Simulation::begin_op(u32 lane) {
  auto& running = running_[lane];
  const auto& op = (*running.ops)[running.op];
  running.chunks = op.overlaps ? u64{op.chunks} * running.iterations : op.chunks;
  for (auto& runner : running.runners) runner = {};
  feed(lane, 0);
}

/// The time at which the host has queued the next chunk of a lane's op, not before the lane begins.
double Simulation::next_queued(u32 lane) const {
  const auto& running = running_[lane];
  if (!(until_ ? lanes_[lane].called : lanes_[lane].queues)) return running.works_from;
  const auto& op = (*running.ops)[running.op];
  const auto next = static_cast<double>(running.runners[0].done + 1);
  const double of_op = op.calls == 0 ? op.queue + op.queue_copy * next : op.queue * (op.calls > 1 ? next : 1);
  const double queued = running.start + (running.queued + of_op) * running.factors.host * running.factors.slow;
  return std::max(queued, running.works_from);
}

/// Gives an idle stage its next chunk, if there is one.
void Simulation::feed(u32 lane, u32 stage) {
  auto& running = running_[lane];
  const auto& op = (*running.ops)[running.op];
  if (stage >= op.stages.size() || running.runners[stage].step != Step::idle) return;
  const u64 there = stage == 0 ? running.chunks : running.runners[0].done;
  if (running.runners[stage].done == there) return;
  if (const double queued = stage == 0 ? next_queued(lane) : 0; queued > now_) {
    running.runners[0].step = Step::issue;
    return wake(lane * 2, queued);
  }
  if (stage == 0 && op.ring != nobody) {
    running.runners[stage].step = Step::slot;
    if (!take(op.ring, lane * 2 + stage)) return;
  } else {
    running.runners[stage].step = Step::slot;  // needs none
  }
  proceed(lane * 2 + stage);
}

/// The event that the runner waited for has occurred.
void Simulation::proceed(u32 runner) {
  const u32 lane = lane_of(runner), stage_index = stage_of(runner);
  auto& running = running_[lane];
  auto& self = running.runners[stage_index];
  const auto& op = (*running.ops)[running.op];
  const auto& stage = op.stages[stage_index];
  const bool by_thread = stage.by == Stage::By::thread;
  switch (self.step) {
    case Step::issue:
      self.step = Step::idle;
      feed(lane, stage_index);
      return;
    // An engine is held during set-up; a thread makes its calls before it requests the driver's lock.
    case Step::slot:
      if (by_thread) return start_setup(runner);
      self.step = Step::server;
      if (auto* gpu = shared(stage)) gpu->waiting.push_back(runner);
      else if (stage.server == nobody || take(stage.server, runner)) start_setup(runner);
      return;
    case Step::setup:
      if (!by_thread) return start_flow(runner);
      self.step = Step::server;
      if (stage.server == nobody || take(stage.server, runner)) start_flow(runner);
      return;
    case Step::server:
      return by_thread ? start_flow(runner) : start_setup(runner);
    case Step::word:
      return start_flow(runner);
    case Step::idle:
    case Step::flow:
      return;
  }
}

void Simulation::start_setup(u32 runner) {
  auto& running = running_[lane_of(runner)];
  auto& self = running.runners[stage_of(runner)];
  const auto& op = (*running.ops)[running.op];
  if (op.flag && op.flag->waits()) {
    self.step = Step::word;
    return perform_flag(runner);
  }
  self.step = Step::setup;
  self.bytes = op.migration ? pages_.missing(op, running.iteration, self.done) : chunk_size(op, self.done);
  if (const auto& stage = op.stages[stage_of(runner)]; stage.opposite != nobody)
    servers_[stage.server].moves = !goes_inline(stage, self.bytes);
  wake(runner, now_ + setup_time(running, op, stage_of(runner), self.bytes));
  if (op.migration && !op.migration->contents) self.bytes = 0;
}

void Simulation::perform_flag(u32 runner) {
  const auto& running = running_[lane_of(runner)];
  Memory memory{*this, runner};
  const ActorOp& op = (*running.ops)[running.op].flag->op;
  (void)synchronize(ready(op, running.iteration), op, memory);
}

bool Simulation::Memory::wait(u64 first, u64 count, u64 value, u64) {
  const auto& running = simulation.running_[lane_of(runner)];
  const auto& op = (*running.ops)[running.op];
  const double pace =
      (op.stages[0].by == Stage::By::thread ? running.factors.host : running.factors.compute) * running.factors.slow;
  return simulation.look({runner, simulation.now_, pace, &*op.flag, value, first, first + count * sizeof(Word)});
}

void Simulation::Memory::set(u64 word, u64 value) {
  const auto& running = simulation.running_[lane_of(runner)];
  const double way = (*running.ops)[running.op].flag->way * running.factors.slow;
  const Words::Value set{value, simulation.now_ + way, running.runners[stage_of(runner)].flows_from + way};
  for (const auto& who : simulation.words_.set(word, set)) (void)simulation.look(who);
}

/// Whether a lane sees what it waits for without a further value. Then it goes on when it has.
bool Simulation::look(const Words::Waiting& who) {
  const auto at = words_.wait(who);
  if (!at) return false;
  if (*at - who.since > static_cast<double>(who.flag->op.timeout_ns) * 1e-9)
    throw Error{ErrorKind::timeout,
                who.flag->what + " to become " + std::to_string(who.value) + ": the value came too late"};
  wake(who.runner, *at + who.flag->take * who.pace);
  return true;
}

void Simulation::start_flow(u32 runner) {
  auto& running = running_[lane_of(runner)];
  auto& self = running.runners[stage_of(runner)];
  const auto& op = (*running.ops)[running.op];
  const auto& stage = op.stages[stage_of(runner)];
  const u64 bytes = self.bytes;
  const double speed = stage.by == Stage::By::thread ? running.factors.host : running.factors.rate;
  self.step = Step::flow;
  self.flows_from = now_;
  const double cap = goes_inline(stage, bytes) ? stage.in_command.rate : never;
  fluid_.start(now_, stage.path, static_cast<double>(bytes) * running.factors.slow / speed, cap, runner);
}

/// A chunk has arrived at the end of a stage.
void Simulation::chunk_done(u32 runner) {
  const u32 lane = lane_of(runner), stage_index = stage_of(runner);
  auto& running = running_[lane];
  auto& self = running.runners[stage_index];
  const auto& op = (*running.ops)[running.op];
  const auto& stage = op.stages[stage_index];
  carried_[stage.counter] += self.bytes;
  if (op.migration) pages_.arrive(op, running.iteration, self.done);
  if (op.flag && !op.flag->waits()) perform_flag(runner);
  ++self.done;
  self.step = Step::idle;
  if (stage.opposite != nobody) servers_[stage.server].moves = false;
  u32 drained = nobody;  // released below, after the next stage has requested it
  if (auto* gpu = shared(stage)) leave(*gpu, stage);
  else if (stage.drains && !until_) drained = stage.server;  // for a duration, batches are short (batches_ahead)
  else if (stage.server != nobody) release(stage.server);
  go_on(lane, stage_index);
  if (drained != nobody) release(drained, runner);
}

/// Starts what follows the chunk that has left a stage.
void Simulation::go_on(u32 lane, u32 stage_index) {
  auto& running = running_[lane];
  auto& self = running.runners[stage_index];
  const auto& op = (*running.ops)[running.op];
  const bool last_stage = stage_index + 1 == op.stages.size();
  const bool between_copies = stage_index == 0 && self.done % op.chunks == 0;
  if (op.overlaps && until_ && now_ >= *until_ && between_copies) running.chunks = self.done;
  if (last_stage) {
    if (op.ring != nobody) release(op.ring);
    if (self.done % op.chunks == 0) {
      memory_.copied(op, op.overlaps ? self.done / op.chunks - 1 : running.iteration);
      if (op.overlaps && until_) running.marks->add(now_, self.done / op.chunks);
    }
    if (self.done == running.chunks) {
      op_done(lane);
      return;
    }
  } else {
    feed(lane, stage_index + 1);
  }
  feed(lane, stage_index);
}

/// At the end of a part of a loop in two parts: goes to the next pass of that part, or from the last pass of the first
/// part to the first pass of the second. False: no part ends, or the iteration does.
bool Simulation::next_of_part(Running& running, u32 first_ops) const {
  const bool ends_first = running.op == first_ops, last_pass = (running.iteration + 1) % passes_ == 0;
  if (!ends_first && (running.op != running.ops->size() || last_pass)) return false;
  if (ends_first && last_pass) {
    running.iteration -= passes_ - 1;
    return true;
  }
  ++running.iteration;
  running.op = ends_first ? 0 : first_ops;
  return true;
}

void Simulation::op_done(u32 lane) {
  auto& running = running_[lane];
  const auto& op = (*running.ops)[running.op];
  const bool overlapped = op.overlaps;
  const double slow = running.factors.compute * running.factors.slow;
  if (op.launches > 0) running.busy = std::max(now_ + op.launches * slow, running.busy + op.each * slow);
  const auto done = overlapped ? static_cast<u32>(running.chunks / op.chunks) : 1;
  running.queued += queueing(op, done);
  ++running.op;
  const u32 first_ops = running.ops == &lanes_[lane].loop ? lanes_[lane].first_ops : 0;
  const bool within = first_ops && next_of_part(running, first_ops);
  if (!within && running.op == running.ops->size()) {
    running.op = 0;
    running.iteration += done;
    if (!goes_on(lane)) {
      running.end = now_ + op.tail * running.factors.engine * running.factors.slow;
      return;
    }
  }
  begin_op(lane);
}

bool Simulation::take(u32 server, u32 runner) {
  auto& wanted = servers_[server];
  if (wanted.free == 0) {
    wanted.waiting.push_back(runner);
    return false;
  }
  --wanted.free;
  return true;
}

/// Serves the runner that has waited longest, or `first` if that one waits too.
void Simulation::release(u32 server, u32 first) {
  auto& held = servers_[server];
  if (held.waiting.empty()) {
    ++held.free;
    return;
  }
  auto next = std::find(held.waiting.begin(), held.waiting.end(), first);
  if (next == held.waiting.end()) next = held.waiting.begin();
  const u32 runner = *next;
  held.waiting.erase(next);
  proceed(runner);
}

void Simulation::wake(u32 runner, double at) {
  const auto place = std::find_if(timers_.begin(), timers_.end(), [&](const Timer& timer) { return timer.at <= at; });
  timers_.insert(place, {at, runner});
}

}  // namespace linkscope::sim
