#include "platform/sim/lanes.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace linkscope::sim {
namespace {

/// The actor that makes a move on another GPU.
Actor helper_of(const Actor& actor, const Place& place) {
  return {place, actor.kind, actor.clock, actor.cpu, actor.process, {}, {}};
}

}  // namespace

Servers::Servers(const Machine& machine) {
  const auto add = [&](u32 count) {
    counts_.push_back(count);
    return static_cast<u32>(counts_.size() - 1);
  };
  for (const auto& gpu : machine.gpus) {
    // One engine does everything in turn; with two, each direction has its own; with three or more, copies to other
    // GPUs use the rest.
    const u32 in = add(1);
    const u32 out = gpu.copy_engines > 1 ? add(1) : in;
    const u32 peer = gpu.copy_engines > 2 ? add(gpu.copy_engines - 2) : out;
    const u32 all_sms = add(1);
    engines_.insert(engines_.end(), {in, out, peer, all_sms});
  }
  cards_ = static_cast<u32>(counts_.size());
  counts_.insert(counts_.end(), machine.nics.size(), 1);
  by_caller_ = machine.pageable_by_caller;
  of_driver_ = {1, machine.pageable.slots, machine.pageable.slots, machine.staged_peer.slots, 1};
}

std::vector<u32> Servers::counts(u32 processes) const {
  auto all = counts_;
  for (u32 process = 0; process < processes; ++process) all.insert(all.end(), of_driver_.begin(), of_driver_.end());
  return all;
}

std::vector<u32> Lanes::shared_gpus() const {
  if (mps) return {};
  std::map<u32, std::set<u32>> users;
  for (const auto& lane : lanes)
    for (const auto* ops : {&lane.once, &lane.loop})
      for (const auto& op : *ops)
        for (const auto& stage : op.stages)
          if (stage.gpu != nobody) users[stage.gpu].insert(lane.process);
  std::vector<u32> shared;
  for (const auto& [gpu, processes] : users)
    if (processes.size() > 1) shared.push_back(gpu);
  return shared;
}

// Resources, in order: memories of NUMA nodes and GPUs (by node), directed links, shares, page walks of GPUs (walks per
// second), L2 caches of GPUs.
std::vector<double> Compiler::capacities() const {
  std::vector<double> all;
  for (const auto& numa : machine_.numa) all.push_back(numa.dram);
  for (const auto& gpu : machine_.gpus) all.push_back(gpu.memory);
  for (const auto& link : machine_.links) all.push_back(link.rate);
  for (const auto& share : machine_.shares) all.push_back(share.rate);
  const double walk = machine_.kernel ? machine_.kernel->host_walk : 0;
  all.insert(all.end(), machine_.gpus.size(), walk > 0 ? 1 / walk : never);
  for (const auto& gpu : machine_.gpus) all.push_back(gpu.l2 > 0 ? gpu.l2 : never);
  return all;
}

u32 Compiler::walks(Node gpu) const {
  return link_resource(0) + static_cast<u32>(machine_.links.size() + machine_.shares.size()) + gpu -
         machine_.first_gpu();
}

Op Compiler::op(const Program& program, const Actor& actor, const Step& step) const {
  if (const auto* move = std::get_if<Move>(&step))
    return move->by ? op(program, helper_of(actor, *move->by), *move) : op(program, actor, *move);
  if (const auto* prefetch = std::get_if<Prefetch>(&step)) return op(program, actor, *prefetch);
  if (const auto* call = std::get_if<Call>(&step)) return op(program, actor, *call);
  if (const auto* set = std::get_if<Set>(&step)) return op(program, actor, *set);
  if (const auto* wait = std::get_if<Wait>(&step)) return op(program, actor, *wait);
  if (std::holds_alternative<Fence>(step)) return fence(program, actor);
  if (const auto* library = std::get_if<Opaque>(&step)) return op(program, actor, *library);
  if (const auto* message = std::get_if<Message>(&step)) return op(program, actor, *message);
  return op(program, actor, std::get<Kernel>(step));
}

/// What an op needs besides its stages: the cost of queueing it, and its numbers among all of the program.
void Compiler::finish(const Actor& actor, const Step& step, Op& made, Lanes& all) const {
  const auto* move = std::get_if<Move>(&step);
  const Place& place = move && move->by ? *move->by : actor.place;
  // Its host thread queues a copy, or launches a kernel, when the words before it have come.
  if (move && actor.kind == ActorKind::stream && exchanges_words(actor))
    made.call += by_copy_engine(move->engine) ? machine_.costs.call : machine_.costs.launch;
  if (place != actor.place) {
    made.elsewhere = true;
    made.start += 2 * machine_.costs.stream_wait.value_or(0);  // in both directions
  }
  queue(actor, step, made);
  made.id = all.tracks;
  all.tracks += std::max<u32>(1, static_cast<u32>(made.moves.size()));
  for (auto& stage : made.stages) {
    stage.counter = all.stages++;
    const bool on_gpu = stage.by != Stage::By::thread && stage.by != Stage::By::call && stage.by != Stage::By::card;
    if (on_gpu && stage.gpu == nobody) stage.gpu = node(place) - machine_.first_gpu();
  }
}

std::vector<Op> Compiler::ops(const Program& program, const Actor& actor, const std::vector<Step>& steps,
                              Lanes& all) const {
  std::vector<const Step*> in_order;
  for (const auto& step : steps) in_order.push_back(&step);
  // A receive of a window is posted first, but is waited for last. Among words, messages keep their place.
  const bool among_words = exchanges_words(actor);
  std::stable_partition(in_order.begin(), in_order.end(), [among_words](const Step* step) {
    const auto* message = std::get_if<RankMessage>(step);
    return among_words || !message || message->sends || message->window == 0;
  });
  std::vector<Op> made;
  for (const Step* step : in_order) {
    const auto* message = std::get_if<RankMessage>(step);
    const auto* collective = std::get_if<Collective>(step);
    for (auto& part : message      ? ops(program, actor, *message)
                      : collective ? ops(program, actor, *collective)
                                   : std::vector<Op>{op(program, actor, *step)}) {
      finish(actor, *step, part, all);
      made.push_back(std::move(part));
    }
  }
  return made;
}

/// How a lane is queued and stamped.
void Compiler::time(const Program& program, const Actor& actor, Lane& lane) const {
  const auto& costs = machine_.costs;
  lane.waits = std::any_of(lane.loop.begin(), lane.loop.end(), [](const Op& o) { return o.waits; });
  lane.held = program.held_by != HeldBy::nothing;
  // A block's loop is one launch.
  const bool by_calls = !lane.waits && actor.kind != ActorKind::gpu_block;
  lane.exchanges = keeps_step(actor);
  if (makes_round_trips(actor)) lane.pair = 1 + std::min(actor.process, std::get<RankMessage>(actor.loop.front()).peer);
  lane.called = on_gpu(actor.kind) && by_calls && !lane.exchanges;
  lane.by_event = on_gpu(actor.kind) && actor.clock == Clock::event && !(lane.waits && lane.held);
  if (lane.by_event) {
    lane.closing = costs.event;
    lane.after_kernel = program.held_by == HeldBy::kernel;
    lane.queues = !lane.held && by_calls;
  } else if (on_gpu(actor.kind)) {
    lane.closing = costs.sync + costs.host_stamp;
    lane.queues = by_calls && !lane.exchanges;
  } else {
    lane.closing = costs.host_stamp;
  }
}

/// A stream's next iteration is queued when the thread has seen the end of the one before.
void Compiler::run_singly(const Actor& actor, Lane& lane) const {
  lane.singly = true;
  lane.called = false;
  for (auto& o : lane.loop) o.overlaps = false;
  if (on_gpu(actor.kind)) lane.loop.front().start += lane.loop.front().queue + machine_.costs.sync;
}

std::string Compiler::route(const Actor& actor, const Lane& lane) const {
  std::string route;
  for (const auto& o : lane.loop)
    for (const auto& stage : o.stages)
      for (const u32 link : stage.path.links) route += (route.empty() ? "" : ", ") + machine_.links[link].name;
  return route.empty() ? "within " + to_string(actor.place) : route;
}

Lanes Compiler::compile(const Program& program) const {
  Lanes all;
  all.processes = processes(program);
  all.passes = program.passes;
  all.mps = program.mps;
  for (const auto& actor : program.actors) {
    Lane lane;
    lane.process = actor.process;
    lane.leader = leader_of(program, static_cast<u32>(all.lanes.size()));
    lane.once = ops(program, actor, actor.once, all);
    lane.loop = ops(program, actor, actor.loop, all);
    if (actor.first_steps) {
      Lanes uncounted;
      const auto begin = actor.loop.begin();
      lane.first_ops = static_cast<u32>(ops(program, actor, {begin, begin + actor.first_steps}, uncounted).size());
    }
    time(program, actor, lane);
    lane.rest = rest_after(actor, 1);
    // Calls overlap with the copy before only if nothing of another kind stands between them, and no rest.
    if (lane.loop.size() > 1 || lane.rest > 0)
      for (auto& o : lane.loop) o.overlaps = false;
    if (actor.singly) run_singly(actor, lane);
    wake(program, actor, lane);
    lane.route = route(actor, lane);
    all.lanes.push_back(std::move(lane));
  }
  return all;
}

}  // namespace linkscope::sim
