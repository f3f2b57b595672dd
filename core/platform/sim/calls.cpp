// The cost of calls and of atomic operations.
#include <algorithm>
#include <map>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

// --- calls ----------------------------------------------------------------------------------------------------------

namespace {

/// The time of a call by name: a fixed part, and more for its amount. Null for calls that the model does not know.
using Cost = double (*)(const CallCosts&, double amount);
Cost cost_of(const std::string& api) {
  static const std::map<std::string, Cost> costs{
      {"launch", [](const CallCosts& c, double bytes) { return c.launch - c.locked + c.argument * bytes; }},
      {"synchronize_stream", [](const CallCosts& c, double) { return c.synchronize; }},
      {"synchronize_device", [](const CallCosts& c, double) { return c.synchronize; }},
      {"synchronize_event", [](const CallCosts& c, double) { return c.synchronize; }},
      {"record_event", [](const CallCosts& c, double) { return c.record; }},
      {"query_event", [](const CallCosts& c, double) { return c.query; }},
      {"create_stream", [](const CallCosts& c, double) { return c.create_stream; }},
      {"destroy_stream", [](const CallCosts& c, double) { return c.destroy_stream; }},
      {"instantiate_graph",
       [](const CallCosts& c, double nodes) { return c.instantiate + c.instantiate_node * nodes; }},
      {"upload_graph", [](const CallCosts& c, double nodes) { return c.upload + c.upload_node * nodes; }},
      {"launch_graph", [](const CallCosts& c, double nodes) { return c.graph + c.graph_node * nodes; }},
  };
  const auto found = costs.find(api);
  return found == costs.end() ? nullptr : found->second;
}

}  // namespace

Support Compiler::supports(const Program& program, const Actor& actor, const Call& call) const {
  if (!call.on) return supports_phase(program, actor, call);
  if (actor.kind != ActorKind::cpu_thread) return Support::no("calls are made by CPU threads");
  if (!machine_.find(*call.on)) return Support::no("the machine " + machine_.name + " has no " + to_string(*call.on));
  if (call.on->host != actor.place.host)
    return Support::no(to_string(*call.on) + " is on another host than " + to_string(actor.place));
  if (call.api == "copy") {
    for (const auto* span : {&*call.span, &*call.to})
      if (is_pageable(program.regions[span->region].kind))
        return Support::no(
            "a call that copies pageable memory waits for the copy, so the call cannot be timed by itself");
    return {};
  }
  if (!cost_of(call.api)) return Support::no("the model cannot time the call '" + call.api + "' yet");
  if (!machine_.calls)
    return Support::no("the model " + machine_.name + " does not say what calls cost: its file has no [calls]");
  if (call.api.ends_with("_graph") && !machine_.calls->graphs)
    return Support::no("the driver of the model " + machine_.name + " has no graphs: graph_us of [calls]");
  return {};
}

Op Compiler::op(const Program& program, const Actor& actor, const Call& call) const {
  if (!call.on) return phase(program, call);
  Op op;
  Stage stage;
  stage.by = Stage::By::thread;
  if (call.api == "copy") {
    stage.setup = machine_.costs.call;
    // Queued work runs when the thread's last call returns; the calls take no part of its time.
    add_links(stage.path, node(program.regions[call.span->region].at), node(program.regions[call.to->region].at));
    stage.path.uses.clear();
    stage.path.latency = 0;
    op.bytes = op.chunk_bytes = call.span->bytes;
    op.moves = {Move{*call.span, *call.to}};
  } else {
    stage.setup = cost_of(call.api)(*machine_.calls, static_cast<double>(call.amount));
  }
  op.stages.push_back(std::move(stage));
  if (call.api == "launch") {
    op.stages.push_back(
        {.by = Stage::By::call, .server = servers_.lock(actor.process), .path = {}, .setup = machine_.calls->locked});
    op.launches = machine_.calls->end;
    op.each = machine_.kernel ? machine_.kernel->launch : 0;
  }
  op.joins = call.api.starts_with("synchronize");
  return op;
}

// --- atomic operations ----------------------------------------------------------------------------------------------

/// A CPU thread adds to words that its cache holds. A GPU that adds to the same word takes the line from that cache with
/// each of its additions, and the thread's next one loads it again.
Op Compiler::atomic_by_cpu(const Program& program, const Actor& actor, const Access& access) const {
  const auto& costs = *machine_.atomic;
  const Node at = node(program.regions[access.span.region].at), by = node(actor.place);
  Path way;
  if (at != by) add_links(way, by, at);
  double share = 1;  // of the time that the thread adds, and does not load
  for (const auto& other : program.actors)
    for (const auto& step : other.loop) {
      const auto* kernel = std::get_if<Kernel>(&step);
      if (!on_gpu(other.kind) || !kernel || !traits_of(kernel->id).atomic) continue;
      const Span& span = kernel->traffic.front().span;
      if (span.region != access.span.region || span.offset != access.span.offset) continue;
      Path from_gpu;
      add_links(from_gpu, node(other.place), at);
      share -= (machine_.numa[at].load + 2 * way.latency) / (2 * from_gpu.latency + costs.host);
    }
  constexpr double least_share = 0.1;
  Op op;
  op.bytes = op.chunk_bytes = access.span.bytes;
  Stage stage;
  stage.by = Stage::By::thread;
  stage.server = nobody;
  stage.path.cap = access.width / costs.cpu * std::max(share, least_share);
  op.stages.push_back(std::move(stage));
  return op;
}

Op Compiler::atomic(const Program& program, const Actor& actor, const Kernel& kernel) const {
  if (actor.kind == ActorKind::cpu_thread) return atomic_by_cpu(program, actor, kernel.traffic.front());
  const auto& costs = *machine_.atomic;
  const auto& access = kernel.traffic.front();
  const Node at = node(program.regions[access.span.region].at), by = node(actor.place);
  const bool waits = kernel.dependent_steps > 0, at_gpu = machine_.is_gpu(at);
  Path way;
  if (at != by) add_links(way, by, at);
  Op op;
  op.bytes = op.chunk_bytes = access.span.bytes;
  Stage stage;
  stage.by = Stage::By::threads;
  if (waits) {
    stage.setup = 2 * way.latency + (at_gpu ? costs.gpu : costs.host);
    stage.path.links = way.links;
  } else {
    const double word = access.width;
    const double there = way.latency;
    stage.setup = machine_.kernel->launch + there;
    for (auto& use : way.uses) use.weight *= costs.link_bytes / word;
    stage.path = std::move(way);
    stage.path.latency = 0;
    const bool same = access.pattern == Access::Pattern::same;
    // An operation on one word of a host's memory waits until the one before has returned.
    if (at_gpu) stage.path.cap = word * (!same ? costs.gpu_rate : at == by ? costs.same_rate : costs.same_peer_rate);
    else stage.path.cap = same ? word / (2 * there + costs.host) : word * costs.host_rate;
    // Words outside the cache are read and written back; a single word stays in it.
    if (access.pattern != Access::Pattern::same)
      stage.path.uses.push_back({at, 2 / (at_gpu ? machine_.kernel->memory_share : 1)});
  }
  op.stages.push_back(std::move(stage));
  return op;
}

}  // namespace linkscope::sim
