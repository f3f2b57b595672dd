// What a chunk costs before its bytes flow.
#include <algorithm>
#include <bit>

#include "platform/sim/simulation.hpp"

namespace linkscope::sim {
namespace {

/// The number of set-ups of a chunk, if each brings as much as all those before it.
double set_ups(const Stage& stage, u64 bytes) {
  if (stage.first_setup == 0) return 1;
  return 1.0 + static_cast<double>(std::bit_width((bytes + stage.first_setup - 1) / stage.first_setup - 1));
}

}  // namespace

/// Additional cost of a chunk for regions and blocks of which nothing is there yet.
double Simulation::fresh_setup(const Running& running, const Op& op, const Stage& stage) const {
  if (stage.region_setup == 0 && stage.block_setup == 0) return 0;
  const auto fresh = [&](u64 unit) {
    return static_cast<double>(pages_.fresh(op, running.iteration, running.runners[0].done, unit));
  };
  return stage.region_setup * fresh(managed_region) + stage.block_setup * fresh(managed_block);
}

/// The cost of a chunk before its bytes flow.
double Simulation::setup_time(Running& running, const Op& op, u32 stage_index, u64 bytes) const {
  const auto& stage = op.stages[stage_index];
  const auto& factors = running.factors;
  const bool nothing_missing = op.migration && bytes == 0;
  const double setup = nothing_missing
                           ? stage.present
                           : stage.setup * set_ups(stage, bytes) + stage.byte_setup * static_cast<double>(bytes) +
                                 fresh_setup(running, op, stage);
  double time = nothing_missing ? 0 : stage.path.latency;
  switch (stage.by) {
    case Stage::By::engine:
      if (goes_inline(stage, bytes))
        time += to_channel(running, Channel::compute) + stage.in_command.setup * factors.compute;
      else time += to_channel(running, Channel::engine) + (setup + beside_opposite(stage)) * factors.engine;
      break;
    case Stage::By::threads:
      time += (op.elsewhere ? 0 : to_channel(running, Channel::compute)) + setup * factors.compute;
      break;
    case Stage::By::compute:
      time += to_channel(running, Channel::compute) + setup * factors.compute;
      break;
    case Stage::By::relay:
    case Stage::By::card:
      time += setup * factors.engine;
      break;
    case Stage::By::thread:
    case Stage::By::call:
      time += setup * factors.host;
      break;
  }
  if (stage_index == 0 && running.runners[0].done % op.chunks == 0) time += op.call + op.start;
  if (stage_index == 0 && running.runners[0].done == 0 && running.iteration == 0) time += op.lead;
  if (running.runners[stage_index].done == 0 && running.iteration == 0) time += stage.wake_up;
  time *= factors.slow;
  return op.joins ? std::max(time, running.busy - now_) : time;
}

/// The delay of an engine's set-up while the other direction's engine works.
double Simulation::beside_opposite(const Stage& stage) const {
  const bool beside = stage.opposite != nobody && servers_[stage.opposite].moves;
  return beside ? machine_.copy.opposite : 0;
}

double Simulation::to_channel(Running& running, Channel channel) const {
  const bool changes = running.channel != Channel::none && running.channel != channel;
  running.channel = channel;
  return changes ? machine_.copy.channel * running.factors.channel : 0;
}

}  // namespace linkscope::sim
