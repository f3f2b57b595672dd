// Operations as elements of a network card's queues (verbs.hpp), for posters (poster.hpp).
#pragma once
#include "base/ring.hpp"
#include "putget/verbs.hpp"

namespace linkscope {

/// A queue pair as its poster uses it, in memory of the poster's processor.
struct CardQueues {
  verbs::SendQueue send;
  verbs::CompletionQueue completions;  // no fewer entries than blocks of `send`, so that no completion is lost
  RingWord local, remote;              // the regions, as they were registered
  RingWord old_value;                  // 8 registered bytes, where the card stores what a word was before an addition
  verbs::Word local_key, remote_key, old_value_key;
  unsigned failure;  // Posted, why the card executes nothing any longer; 0 at first
  bool fetches;      // gets or additions may be under way, which later writes must not overtake
};

[[nodiscard]] LINKSCOPE_ANYWHERE verbs::Word blocks_under_way(const CardQueues& queues) {
  return queues.send.posted - queues.send.retired;
}

/// The element of an operation. `value`: a copy of the operation's, which lives until the element is written.
[[nodiscard]] LINKSCOPE_ANYWHERE verbs::Request request_of(CardQueues& queues, const Operation& one,
                                                           const RingWord& value) {
  verbs::Request made;
  made.remote = queues.remote + one.remote;
  made.remote_key = queues.remote_key;
  made.local = queues.local + one.local;
  made.local_key = queues.local_key;
  made.bytes = static_cast<verbs::Word>(one.bytes);
  if (one.verb == Verb::get) made.opcode = verbs::Opcode::read;
  if (one.verb == Verb::set || one.verb == Verb::add) made.bytes = sizeof value;
  if (one.verb == Verb::set) {
    made.in_element = true;
    made.local = reinterpret_cast<RingWord>(&value);
  } else if (one.verb == Verb::add) {
    made.opcode = verbs::Opcode::fetch_add;
    made.add = value;
    made.local = queues.old_value;
    made.local_key = queues.old_value_key;
  }
  const bool writes = made.opcode == verbs::Opcode::write;
  made.after_reads = writes && queues.fetches;
  queues.fetches = !writes;
  return made;
}

/// Posts operations that have room, a block each, and rings. The last one completes for all.
template <class Card>
LINKSCOPE_ANYWHERE void post_elements(CardQueues& queues, const Operation* operations, unsigned count, Card& card) {
  bool any = false;
  LINKSCOPE_ROLLED
  for (unsigned i = 0; i < count; ++i) {
    const bool moves = operations[i].verb == Verb::put || operations[i].verb == Verb::get;
    if (operations[i].verb == Verb::none || (moves && operations[i].bytes == 0)) continue;
    const RingWord value = operations[i].value;
    verbs::Request request = request_of(queues, operations[i], value);
    request.completes = i + 1 == count;
    (void)verbs::post(queues.send, request, card);
    any = true;
  }
  if (any) verbs::submit(queues.send, card);
}

/// A completion in one word, which is not 0.
[[nodiscard]] LINKSCOPE_ANYWHERE RingWord packed(const verbs::Completion& completion) {
  return valid_bit | static_cast<RingWord>(completion.status) << 40 | static_cast<RingWord>(completion.index) << 24 |
         completion.queue;
}
[[nodiscard]] LINKSCOPE_ANYWHERE verbs::Completion unpacked_completion(RingWord word) {
  verbs::Completion completion;
  completion.status = static_cast<verbs::Status>(word >> 40 & 0xff);
  completion.index = static_cast<verbs::Word>(word >> 24 & 0xffff);
  completion.queue = static_cast<verbs::Word>(word & 0xffffff);
  return completion;
}

}  // namespace linkscope
