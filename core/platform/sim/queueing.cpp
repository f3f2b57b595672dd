// The cost of queueing for the host, and the wake-up delays of the first work after idling.
#include <algorithm>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

void Compiler::queue(const Actor& actor, const Step& step, Op& op) const {
  const auto* move = std::get_if<Move>(&step);
  // A block's ops come with its launch. Words keep the time of a call, so that the stamps of loops of words fall on the
  // same ticks of the event clock as ever.
  if (actor.kind == ActorKind::gpu_block && !op.flag) return;
  const bool kernel = std::holds_alternative<Kernel>(step) || std::holds_alternative<Opaque>(step) ||
                      (move && (move->engine == Engine::sm || move->engine == Engine::tma));
  op.queue = kernel ? machine_.costs.launch : machine_.costs.call;
  if (!move) return;
  if (move->engine == Engine::batch) op.queue_copy = machine_.batch->host;
  if (move->engine != Engine::graph) return;
  op.queue = machine_.calls ? machine_.calls->graph : machine_.costs.launch;
  op.queue_copy = machine_.calls ? machine_.calls->graph_node : 0;
}

/// Commands cross the links between the host and the GPU and wake both: before the time begins with a gate, whose word
/// is in host memory, or an event; within the time with the host's clock. Other links wake when bytes arrive.
void Compiler::wake(const Program& program, const Actor& actor, Lane& lane) const {
  const double idle = program.idle.count();
  const auto* call = std::get_if<Call>(&actor.loop.front());
  const Place& place = call && call->on ? *call->on : actor.place;
  if (idle == 0 || place.kind != PlaceKind::gpu) return;
  const Node gpu = node(place), host = host_of(actor);
  Path commands;
  add_links(commands, host, gpu);
  double commanded = 0;
  if (!lane.by_event) {
    commanded = machine_.gpu(gpu).wake_up.after(idle);
    for (const u32 link : commands.links) commanded += machine_.links[link].wake_up.after(idle);
  }
  Op& first = lane.loop.front();
  if (first.launches > 0) first.launches += commanded;
  const auto works =
      std::find_if(first.stages.begin(), first.stages.end(), [](const Stage& stage) { return stage.gpu != nobody; });
  if (works == first.stages.end()) return;
  works->wake_up = commanded;
  add_links(commands, gpu, host);
  auto awake = commands.links;
  for (const auto& stage : first.stages)
    for (const u32 link : stage.path.links) {
      if (std::find(awake.begin(), awake.end(), link) != awake.end()) continue;
      works->wake_up += machine_.links[link].wake_up.after(idle);
      awake.push_back(link);
    }
}

}  // namespace linkscope::sim
