// Messages between ranks. A message costs what one through shared memory costs (Message): a set-up, and two copies, both of
// which are in the receiver's time. Between hosts the bytes also cross the network. A blocking send ends when its message
// has come, a send of a window when the message before has come, and a send ahead when an earlier one has come: the receiver
// is always the slower one.
#include <algorithm>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {
namespace {

constexpr const char* waited_for_count = "a rank waited for a count of messages";

/// The rank at the other end: the actor with the opposite messages.
const Actor* rank_of(const Program& program, const Actor& actor, const RankMessage& message) {
  const auto found = std::find_if(program.actors.begin(), program.actors.end(), [&](const Actor& other) {
    if (other.process != message.peer) return false;
    return std::any_of(other.loop.begin(), other.loop.end(), [&](const Step& step) {
      const auto* answer = std::get_if<RankMessage>(&step);
      return answer && answer->peer == actor.process && answer->sends != message.sends;
    });
  });
  return found == program.actors.end() ? nullptr : &*found;
}

/// The two words of the messages from one process to another: how many were sent, and how many have come.
u64 word_of(u32 from, u32 to, bool come) {
  constexpr u32 behind_all_regions = 0xF000, most_processes = 4096;
  return address_of(behind_all_regions, ((u64{from} * most_processes + to) * 2 + (come ? 1 : 0)) * sizeof(u64));
}

/// Whether a loop first starts one message to a process and then receives one: both have ended after that, so that the
/// sender may overwrite its own.
bool answers_in_turn(const Actor& actor, u32 peer) {
  for (const auto& step : actor.loop)
    if (const auto* message = std::get_if<RankMessage>(&step); message && message->peer == peer)
      return message->sends && message->window == 1;
  return false;
}

}  // namespace

Support Compiler::supports(const Program& program, const Actor& actor, const RankMessage& message) const {
  if (actor.place.kind != PlaceKind::numa) return Support::no("messages between ranks are of CPU threads");
  const Actor* other = rank_of(program, actor, message);
  if (!other) return Support::no("no actor of process " + std::to_string(message.peer) + " answers the messages");
  if (message.span && program.regions[message.span->region].at.kind == PlaceKind::gpu)
    return Support::no("the model's MPI takes no buffers of GPUs: use way=staged or way=double");
  if (!machine_.find(other->place))
    return Support::no("the machine " + machine_.name + " has no " + to_string(other->place));
  if (!routes_.between(node(actor.place), node(other->place)))
    return Support::no("no route leads from " + to_string(actor.place) + " to " + to_string(other->place));
  return {};
}

std::vector<Op> Compiler::ops(const Program& program, const Actor& actor, const RankMessage& message) const {
  const u32 from = message.sends ? actor.process : message.peer, to = message.sends ? message.peer : actor.process;
  const u64 sent = word_of(from, to, false), come = word_of(from, to, true);
  if (message.sends) {
    const u64 waits_for =
        message.window ? 0 : 1 - u64{message.ahead};  // the message before, this one, or one long before
    Op set = count_op(OpKind::set, sent, 1, 1, waited_for_count),
       wait = count_op(OpKind::wait, come, waits_for, 1, waited_for_count);
    if (message.window) return {std::move(wait), std::move(set)};
    return {std::move(set), std::move(wait)};
  }
  const Node sender = node(rank_of(program, actor, message)->place), receiver = node(actor.place);
  const auto& numa = machine_.numa[sender];
  Op copy;
  Stage stage;
  stage.by = Stage::By::thread;
  if (sender != receiver) add_links(stage.path, sender, receiver);
  add_use(stage.path, sender, 4);
  stage.path.cap = (sender == receiver ? numa.memcpy_near : numa.memcpy_far) / 2;
  stage.setup = machine_.messages.latency[static_cast<std::size_t>(linkscope::Channel::shm)];
  // A thread that also drives a stream asks between messages whether its copies have ended.
  if (actor.thread_of) stage.setup += machine_.calls ? machine_.calls->query : machine_.costs.call;
  copy.stages.push_back(std::move(stage));
  if (message.span) {
    copy.bytes = copy.chunk_bytes = message.span->bytes;
    copy.moves = {Move{*message.theirs, *message.span, Engine::cpu}};
  }
  std::vector<Op> ops{count_op(OpKind::wait, sent, 1, 1, waited_for_count), std::move(copy),
                      count_op(OpKind::set, come, 1, 1, waited_for_count)};
  if (answers_in_turn(actor, message.peer))
    ops.push_back(count_op(OpKind::wait, word_of(actor.process, message.peer, true), 1, 1, waited_for_count));
  return ops;
}

}  // namespace linkscope::sim
