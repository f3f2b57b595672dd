// What actors that wait for each other do: a table of ops that GPU blocks, CPU threads and the simulation's lanes
// interpret by the same code. Each actor brings its Memory: how it copies, loads and stores, how it sets a word so that
// an actor that sees the word sees all earlier stores, and how it waits for one. Compiled by g++ and by NVRTC, so nothing but
// the language is used here.
#pragma once

namespace linkscope {

using Word = unsigned long long;  // also an address, which is a number of 64 bits on every processor

/// Where an op works: iteration i at slice i % slices.
struct OpSpan {
  Word start, stride, slices;

  [[nodiscard]] constexpr Word at(Word iteration) const {
    return slices <= 1 ? start : start + iteration % slices * stride;  // a division costs a GPU tens of nanoseconds
  }
};

/// `set`: a word of 8 bytes. `wait`: `bytes` of such words, until all have come. `copy`: `bytes` from `from` to `to`.
/// `load`: sums up the words of `from`. `store`: writes the pattern of a region to `to`. `fence`: earlier stores are
/// visible to everybody before later ones. `send`: like `set`, with `bytes` of `from` in words of 16 bytes, each of which
/// has 8 bytes of them and the value, so that nothing has to be ordered. `receive`: waits until all of these words of
/// `from` have come, and stores their bytes to `to`. `add`: adds to a word in the order of `set`. `copy_tma`: a copy by
/// the tensor memory accelerator.
///
/// Descriptors (base/descriptor_ops.hpp): `post` writes one that asks for a put of `bytes` from an offset of `from` to one
/// of `to`, and for the word `signal` to be set; `take` waits for one; `copy_taken` and `set_taken` do what it asks for.
enum class OpKind : unsigned {
  set,
  wait,
  copy,
  load,
  store,
  fence,
  send,
  receive,
  add,
  copy_tma,
  post,
  take,
  copy_taken,
  set_taken
};
inline constexpr unsigned packed_word_bytes = 16;

struct ActorOp {
  OpKind kind;
  OpSpan from, to;  // wait, load: `from`; set, store: `to`; copy, send, receive: both
  Word bytes;
  Word value, step;   // set, wait, send, receive: iteration i sets or awaits value + i * step
  Word timeout_ns;    // wait, receive
  Word seed, origin;  // store: the seed of the pattern, and the address of its word 0
  // post, take: the ring of descriptors.
  OpSpan slots;      // of this op: several of an iteration share the ring
  Word ring, pairs;  // its first slot, and the pairs of a slot
  Word signal;       // post: the offset of the word; no_signal: the descriptor has no word
};
inline constexpr Word no_signal = ~Word{0};

/// A table as a kernel takes it.
inline constexpr unsigned most_actor_ops = 16;
struct ActorOps {
  unsigned count;
  ActorOp ops[most_actor_ops];
};

/// A further block of a launch. `result` has two words: the sum of what the block loaded, and the op that waited in vain.
struct BlockTable {
  ActorOps table;
  Word* result;
};

/// Whether a word has reached a value. Values are sequence numbers: half of all numbers lie before a value and half behind
/// it, so that the first iterations of a ring may wait for numbers below zero, which have come from the start.
[[nodiscard]] constexpr bool has_come(Word found, Word value) { return found - value < Word{1} << 63; }

/// An op with its addresses and its value in one iteration.
struct ReadyOp {
  OpKind kind;
  Word from, to, bytes, value;
};

[[nodiscard]] constexpr ReadyOp ready(const ActorOp& op, Word iteration) {
  return {op.kind, op.from.at(iteration), op.to.at(iteration), op.bytes, op.value + iteration * op.step};
}

[[nodiscard]] constexpr bool waits(OpKind kind) {
  return kind == OpKind::wait || kind == OpKind::receive || kind == OpKind::take;
}

/// Sets, waits or orders. False: the word did not arrive; or, in virtual time, not yet.
template <class Memory>
constexpr bool synchronize(const ReadyOp& at, const ActorOp& op, Memory& memory) {
  if (at.kind == OpKind::wait) return memory.wait(at.from, at.bytes / sizeof(Word), at.value, op.timeout_ns);
  if (at.kind == OpKind::set) memory.set(at.to, at.value);
  else if (at.kind == OpKind::add) memory.add(at.to, op.value);
  else memory.fence();
  return true;
}

/// One op of one iteration. False: it waited in vain. Messages and waits come first: a GPU needs 0.1 us to find one op of many.
template <class Memory>
constexpr bool perform(const ReadyOp& at, const ActorOp& op, Word iteration, Memory& memory) {
  if (at.kind == OpKind::receive) return memory.receive(at, op.timeout_ns);
  if (at.kind == OpKind::send) {
    memory.send(at);
    return true;
  }
  if (at.kind == OpKind::wait) return synchronize(at, op, memory);
  switch (at.kind) {
    case OpKind::copy:
      memory.copy(at.to, at.from, at.bytes);
      return true;
    case OpKind::load:
      memory.load(at.from, at.bytes);
      return true;
    case OpKind::store:
      memory.store(at.to, at.bytes, op.seed, (at.to - op.origin) / sizeof(Word));
      return true;
    case OpKind::copy_tma:
      memory.copy_tma(at.to, at.from, at.bytes);
      return true;
    case OpKind::post:
      memory.post(op, iteration);
      return true;
    case OpKind::take:
      return memory.take(op, iteration);
    case OpKind::copy_taken:
      memory.copy_taken(op);
      return true;
    case OpKind::set_taken:
      memory.set_taken(op);
      return true;
    default:
      return synchronize(at, op, memory);
  }
}

/// The op that waited in vain, counted from 1 over all iterations, or 0.
using WaitedInVain = Word;

/// All ops of a table, for `count` iterations from `first`, with a call of `ended` for each, counted from 0.
///
/// While an op waits for a word of the other side, the next one is ready already, so that its fields and addresses do not
/// delay the answer.
template <class Memory, class Ended>
constexpr WaitedInVain perform_each(const ActorOp* ops, unsigned ops_count, Word first, Word count, Memory& memory,
                                    Ended ended) {
  ReadyOp next{};
  bool is_ready = false;
  for (Word i = 0; i < count; ++i) {
    for (unsigned op = 0; op < ops_count; ++op) {
      const ReadyOp now = is_ready ? next : ready(ops[op], first + i);
      is_ready = waits(now.kind);
      if (is_ready) next = op + 1 < ops_count ? ready(ops[op + 1], first + i) : ready(ops[0], first + i + 1);
      if (!perform(now, ops[op], first + i, memory)) return (first + i) * ops_count + op + 1;
    }
    ended(i);
  }
  return 0;
}

template <class Memory>
constexpr WaitedInVain perform_all(const ActorOp* ops, unsigned ops_count, Word first, Word count, Memory& memory) {
  return perform_each(ops, ops_count, first, count, memory, [](Word) {});
}

/// What a kernel notes if its iterations are stamped: its begin and end by the clock in nanoseconds and by that of its
/// processor, and the latter (its low half) at the end of each of the first iterations.
inline constexpr unsigned most_stamps = 2048;
struct BlockStamps {
  Word begun_ns, ended_ns, begun_clock, ended_clock;
  unsigned clocks[most_stamps];
};

/// Polls a word until it has reached `value`. False: not within the time-out.
template <class Memory>
constexpr bool poll(Memory& memory, Word word, Word value, Word timeout_ns) {
  constexpr unsigned polls = 256;  // between two readings of the clock, which would slow the polling
  const Word start = memory.now_ns();
  do {
    for (unsigned i = 0; i < polls; ++i)
      if (has_come(memory.acquire(word), value)) return true;
  } while (memory.now_ns() - start <= timeout_ns);
  return false;
}

}  // namespace linkscope
