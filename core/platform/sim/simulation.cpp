#include "platform/sim/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace linkscope::sim {
namespace {

u64 chunk_size(const Op& op, u64 chunk) {
  return chunk % op.chunks == op.chunks - 1 ? op.bytes - op.chunk_bytes * (op.chunks - 1) : op.chunk_bytes;
}

double on_tick(double time, double tick) { return tick > 0 ? std::floor(time / tick) * tick : time; }

}  // namespace

Simulation::Simulation(const Machine& machine, const Servers& servers, std::vector<double> capacities, const Lanes& lanes,
                       Memory& memory)
    : machine_{machine},
      lanes_{lanes.lanes},
      memory_{memory},
      fluid_{std::move(capacities)},
      running_(lanes.lanes.size()),
      carried_(lanes.stages),
      pages_{lanes, machine} {
  for (const u32 count : servers.counts(lanes.processes)) servers_.push_back({count, {}});
  for (const u32 gpu : lanes.shared_gpus()) shared_.push_back({.gpu = gpu});
}

void Simulation::sample(std::span<const u32> iterations, std::span<const Factors> factors, double tick_phase, Stamp* stamps) {
  now_ = 0;
  fluid_.rewind();
  for (auto& gpu : shared_) gpu.active = nobody;
  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    running_[lane].factors = factors[lane];
    begin(lane, lanes_[lane].once, 1);
  }
  run_to_end();

  // One host thread closes the gate, queues everything behind it and opens it; whoever works on the host starts then.
  double queued = 0;
  for (u32 lane = 0; lane < lanes_.size(); ++lane)
    if (lanes_[lane].by_event) queued += static_cast<double>(iterations[lane] * lanes_[lane].loop.size()) * machine_.costs.call;
  now_ += machine_.costs.launch + queued;
  for (u32 lane = 0; lane < lanes_.size(); ++lane) begin(lane, lanes_[lane].loop, iterations[lane]);
  run_to_end();

  for (u32 lane = 0; lane < lanes_.size(); ++lane) {
    const auto& running = running_[lane];
    stamps[lane] = {running.start, running.end + lanes_[lane].closing};
    if (!lanes_[lane].by_event) continue;
    const double tick = machine_.costs.event_tick;
    for (double* stamp : {&stamps[lane].enter_s, &stamps[lane].exit_s}) *stamp = on_tick(*stamp + tick_phase, tick);
  }
}

std::vector<u64> Simulation::take_carried() { return std::exchange(carried_, std::vector<u64>(carried_.size())); }

void Simulation::run_to_end() {
  for (;;) {
    for (auto& gpu : shared_) schedule(gpu);  // when all that happens at this instant is known
    const double timer = timers_.empty() ? never : timers_.back().at, flow = fluid_.next_end();
    if (timer == never && flow == never) return;
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

void Simulation::begin(u32 lane, const std::vector<Op>& ops, u32 iterations) {
  auto& running = running_[lane];
  running.ops = &ops;
  running.op = running.iteration = 0;
  running.iterations = iterations;
  running.issued = 0;
  running.channel = lanes_[lane].after_kernel ? Channel::compute : Channel::none;
  running.start = running.end = now_;
  if (iterations > 0 && !ops.empty()) begin_op(lane);
}

void Simulation::begin_op(u32 lane) {
  auto& running = running_[lane];
  const auto& op = (*running.ops)[running.op];
  running.chunks = op.overlaps ? u64{op.chunks} * running.iterations : op.chunks;
  for (auto& runner : running.runners) runner = {};
  ++running.issued;
  const double issued = running.start + static_cast<double>(running.issued) * lanes_[lane].issue_every * running.factors.slow;
  if (issued > now_) {
    running.runners[0].step = Step::issue;
    wake(lane * 2, issued);
  } else {
    feed(lane, 0);
  }
}

/// Gives an idle stage its next chunk, if there is one.
void Simulation::feed(u32 lane, u32 stage) {
  auto& running = running_[lane];
  const auto& op = (*running.ops)[running.op];
  if (stage >= op.stages.size() || running.runners[stage].step != Step::idle) return;
  const u64 there = stage == 0 ? running.chunks : running.runners[0].done;
  if (running.runners[stage].done == there) return;
  if (stage == 0 && op.ring != nobody) {
    running.runners[stage].step = Step::slot;
    if (!take(op.ring, lane * 2 + stage)) return;
  } else {
    running.runners[stage].step = Step::slot;  // needs none
  }
  proceed(lane * 2 + stage);
}

/// What the runner waited for is there.
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
    // An engine is held while it sets up; a thread makes its calls before it asks for the driver's lock.
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
    case Step::server: return by_thread ? start_flow(runner) : start_setup(runner);
    case Step::idle:
    case Step::flow: return;
  }
}

void Simulation::start_setup(u32 runner) {
  auto& running = running_[lane_of(runner)];
  auto& self = running.runners[stage_of(runner)];
  const auto& op = (*running.ops)[running.op];
  self.step = Step::setup;
  self.bytes = op.migration ? pages_.missing(op, running.iteration, self.done) : chunk_size(op, self.done);
  wake(runner, now_ + setup_time(running, op, stage_of(runner), self.bytes));
  if (op.migration && !op.migration->contents) self.bytes = 0;
}

void Simulation::start_flow(u32 runner) {
  auto& running = running_[lane_of(runner)];
  auto& self = running.runners[stage_of(runner)];
  const auto& op = (*running.ops)[running.op];
  const auto& stage = op.stages[stage_of(runner)];
  const u64 bytes = self.bytes;
  const double speed = stage.by == Stage::By::thread ? running.factors.host : running.factors.rate;
  self.step = Step::flow;
  const double cap = goes_inline(stage, bytes) ? machine_.copy.inline_rate : never;
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
  ++self.done;
  self.step = Step::idle;
  if (auto* gpu = shared(stage)) leave(*gpu, stage);
  else if (stage.server != nobody) release(stage.server);

  const bool last_stage = stage_index + 1 == op.stages.size();
  if (last_stage) {
    if (op.ring != nobody) release(op.ring);
    if (self.done % op.chunks == 0) memory_.copied(op, op.overlaps ? self.done / op.chunks - 1 : running.iteration);
    if (self.done == running.chunks) {
      op_done(lane);
      return;
    }
  } else {
    feed(lane, stage_index + 1);
  }
  feed(lane, stage_index);
}

void Simulation::op_done(u32 lane) {
  auto& running = running_[lane];
  const bool overlapped = (*running.ops)[running.op].overlaps;
  if (++running.op == running.ops->size()) {
    running.op = 0;
    running.iteration += overlapped ? running.iterations : 1;
  }
  if (running.iteration < running.iterations) begin_op(lane);
  else running.end = now_;
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

void Simulation::release(u32 server) {
  auto& held = servers_[server];
  if (held.waiting.empty()) {
    ++held.free;
    return;
  }
  const u32 next = held.waiting.front();
  held.waiting.erase(held.waiting.begin());
  proceed(next);
}

void Simulation::wake(u32 runner, double at) {
  const auto place = std::find_if(timers_.begin(), timers_.end(), [&](const Timer& timer) { return timer.at <= at; });
  timers_.insert(place, {at, runner});
}

/// What a chunk costs more for regions and blocks of which nothing is there yet.
double Simulation::fresh_setup(const Running& running, const Op& op, const Stage& stage) const {
  if (stage.region_setup == 0 && stage.block_setup == 0) return 0;
  const auto fresh = [&](u64 unit) { return static_cast<double>(pages_.fresh(op, running.iteration, running.runners[0].done, unit)); };
  return stage.region_setup * fresh(managed_region) + stage.block_setup * fresh(managed_block);
}

/// What a chunk costs before its bytes flow.
double Simulation::setup_time(Running& running, const Op& op, u32 stage_index, u64 bytes) const {
  const auto& stage = op.stages[stage_index];
  const auto& factors = running.factors;
  const bool nothing_missing = op.migration && bytes == 0;
  const double setup = nothing_missing ? stage.present : stage.setup + stage.byte_setup * static_cast<double>(bytes) + fresh_setup(running, op, stage);
  double time = nothing_missing ? 0 : stage.path.latency;
  switch (stage.by) {
    case Stage::By::engine:
      if (goes_inline(stage, bytes)) time += to_channel(running, Channel::compute) + machine_.copy.inline_setup * factors.compute;
      else time += to_channel(running, Channel::engine) + setup * factors.engine;
      break;
    case Stage::By::threads: time += setup * factors.compute; break;
    case Stage::By::compute: time += to_channel(running, Channel::compute) + setup * factors.compute; break;
    case Stage::By::relay: time += setup * factors.engine; break;
    case Stage::By::thread: time += setup * factors.host; break;
  }
  if (stage_index == 0 && running.runners[0].done % op.chunks == 0) time += op.call + op.start;
  return time * factors.slow;
}

double Simulation::to_channel(Running& running, Channel channel) const {
  const bool changes = running.channel != Channel::none && running.channel != channel;
  running.channel = channel;
  return changes ? machine_.copy.channel * running.factors.channel : 0;
}

}  // namespace linkscope::sim
