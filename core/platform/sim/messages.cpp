// Messages between processes of a host.
#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

Support Compiler::supports(const Program&, const Actor& actor, const Message& message) const {
  for (const auto& [place, cpu] : {std::pair{actor.place, message.cpu}, std::pair{message.to, message.other_cpu}}) {
    const auto at = machine_.find(place);
    if (!at || place.kind != PlaceKind::numa || place.host != actor.place.host)
      return Support::no("messages go between NUMA nodes of one host, and " + to_string(place) + " is none");
    if (cpu && *cpu >= machine_.numa[*at].cpus) return Support::no(why_no_cpu(place, *cpu, machine_.numa[*at].cpus));
  }
  if (!routes_.between(node(actor.place), node(message.to)))
    return Support::no("no route leads from " + to_string(actor.place) + " to " + to_string(message.to));
  return {};
}

/// A round trip: the message, then its answer. In each direction one thread copies the bytes into the channel and the other
/// copies them out of it, one after the other; each copy reads and writes the memory near the sender of the message.
Op Compiler::op(const Program&, const Actor& actor, const Message& message) const {
  const Node from = node(actor.place), to = node(message.to);
  const auto& numa = machine_.numa[from];
  Op op;
  op.bytes = op.chunk_bytes = message.bytes;
  for (const bool answer : {false, true}) {
    Stage stage;
    stage.by = Stage::By::thread;
    if (from != to) add_links(stage.path, answer ? to : from, answer ? from : to);
    add_use(stage.path, from, 4);
    stage.path.cap = (from == to ? numa.memcpy_near : numa.memcpy_far) / 2;
    stage.setup = machine_.messages.latency[static_cast<std::size_t>(message.channel)];
    // A thread that also drives a stream asks between messages whether its copies have ended.
    if (actor.thread_of && !answer) stage.setup += machine_.calls ? machine_.calls->query : machine_.costs.call;
    op.stages.push_back(std::move(stage));
  }
  return op;
}

}  // namespace linkscope::sim
