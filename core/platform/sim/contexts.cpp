// GPUs that several processes share. A GPU runs the context of one process at a time. It switches to another when its
// slice is over and it has no work; work that has begun by then (a copy, a chunk, a kernel) is finished first.
#include <algorithm>

#include "platform/sim/simulation.hpp"

namespace linkscope::sim {

Simulation::Shared* Simulation::shared(const Stage& stage) {
  const auto found =
      std::find_if(shared_.begin(), shared_.end(), [&](const Shared& gpu) { return gpu.gpu == stage.gpu; });
  return found == shared_.end() ? nullptr : &*found;
}

const Stage& Simulation::stage_of_op(u32 runner) const {
  const auto& running = running_[lane_of(runner)];
  return (*running.ops)[running.op].stages[stage_of(runner)];
}

void Simulation::leave(Shared& gpu, const Stage& stage) {
  --gpu.working;
  if (stage.server != nobody) ++servers_[stage.server].free;
}

/// Starts the waiting runners that may work, or switches the context.
void Simulation::schedule(Shared& gpu) {
  if (gpu.changing || gpu.waiting.empty()) return;
  const auto process = [&](u32 runner) { return lanes_[lane_of(runner)].process; };
  if (gpu.active == nobody) {  // the first of a sample has no context to switch from
    gpu.active = process(gpu.waiting.front());
    begin_slice(gpu);
  }
  const auto other =
      std::find_if(gpu.waiting.begin(), gpu.waiting.end(), [&](u32 runner) { return process(runner) != gpu.active; });
  if (other == gpu.waiting.end() || now_ < gpu.until || gpu.fresh) {
    gpu.fresh = false;
    std::erase_if(gpu.waiting, [&](u32 runner) {
      const u32 server = stage_of_op(runner).server;
      if (process(runner) != gpu.active || (server != nobody && servers_[server].free == 0)) return false;
      if (server != nobody) --servers_[server].free;
      ++gpu.working;
      start_setup(runner);
      return true;
    });
  }
  if (gpu.working > 0 || gpu.waiting.empty()) return;
  const auto next =
      std::find_if(gpu.waiting.begin(), gpu.waiting.end(), [&](u32 runner) { return process(runner) != gpu.active; });
  gpu.active = process(*next);
  gpu.changing = true;
  const auto index = static_cast<u32>(&gpu - shared_.data());
  wake(static_cast<u32>(2 * lanes_.size()) + index,
       now_ + machine_.slices->change * running_[lane_of(*next)].factors.slow);
}

void Simulation::begin_slice(Shared& gpu) {
  gpu.changing = false;
  gpu.fresh = true;
  gpu.until = now_ + machine_.slices->length;
}

}  // namespace linkscope::sim
