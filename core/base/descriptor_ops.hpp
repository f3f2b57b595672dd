// Descriptors as ops of actors (actor_ops.hpp): rings of the library of puts and gets (ring.hpp), of which one actor writes
// slots and another serves them. One thread of an actor makes each call. A Memory brings what ring.hpp asks for.
#pragma once
#include "base/actor_ops.hpp"
#include "base/ring.hpp"

namespace linkscope {

/// The ring of an op. Its credits are words of other ops, so nothing here looks at them.
[[nodiscard]] LINKSCOPE_ANYWHERE Ring ring_of(const ActorOp& op) {
  const RingWord pitch = op.pairs * pair_bytes;
  return {op.ring, 0, static_cast<unsigned>(op.slots.slices * (op.slots.stride / pitch)),
          static_cast<unsigned>(op.pairs)};
}

/// The number of the descriptor of an iteration.
[[nodiscard]] LINKSCOPE_ANYWHERE RingWord descriptor_number(const ActorOp& op, RingWord iteration) {
  const RingWord pitch = op.pairs * pair_bytes;
  return iteration * (op.slots.stride / pitch) + (op.slots.start - op.ring) / pitch;
}

/// The loop has waited for room.
template <class Memory>
LINKSCOPE_ANYWHERE void post_descriptor(const ActorOp& op, RingWord iteration, Memory& memory) {
  DescriptorPoster poster{ring_of(op)};
  poster.posted = poster.completed = descriptor_number(op, iteration);
  Operation operations[2];
  unsigned count = 0;
  if (op.bytes)
    operations[count++] = {Verb::put, op.from.at(iteration) - op.from.start, op.to.at(iteration) - op.to.start,
                           op.bytes, 0};
  if (op.signal != no_signal) operations[count++] = {Verb::set, 0, op.signal, 0, op.value + iteration * op.step};
  (void)poster.try_post(memory, operations, count);
}

/// Polls until the descriptor is there, and unpacks its op.pairs operations. False: not within the time-out.
template <class Memory>
[[nodiscard]] LINKSCOPE_ANYWHERE bool take_descriptor(const ActorOp& op, RingWord iteration, Memory& memory,
                                                      Operation* taken) {
  DescriptorServer server{ring_of(op), descriptor_number(op, iteration)};
  constexpr unsigned looks = 256;  // between two readings of the clock
  const RingWord start = memory.now_ns();
  do {
    LINKSCOPE_ROLLED
    for (unsigned i = 0; i < looks; ++i)
      if (server.try_take(memory, taken)) return true;
  } while (memory.now_ns() - start <= op.timeout_ns);
  return false;
}

/// Calls `put(to, from, bytes)` for each put of a descriptor between the regions of an op.
template <class Put>
LINKSCOPE_ANYWHERE void for_each_put(const ActorOp& op, const Operation* taken, Put put) {
  for (unsigned i = 0; i < op.pairs; ++i)
    if (taken[i].verb == Verb::put) put(op.to.start + taken[i].remote, op.from.start + taken[i].local, taken[i].bytes);
}

/// Calls `set(word, value)` for each word.
template <class Set>
LINKSCOPE_ANYWHERE void for_each_word(const ActorOp& op, const Operation* taken, Set set) {
  for (unsigned i = 0; i < op.pairs; ++i)
    if (taken[i].verb == Verb::set) set(op.to.start + taken[i].remote, taken[i].value);
}

}  // namespace linkscope
