// What posts operations to a channel: puts, gets, signals and additions between its two regions. The same code runs in CPU
// threads and, for a thread, a warp or a block, on GPUs. A Memory has here, beside what ring.hpp asks for: `copy` by all
// threads of a group, `add` and `claim` of a word, `now_ns`, and Card: how it reaches a network card (verbs.hpp).
#pragma once
#include "base/ring.hpp"
#include "putget/card_queues.hpp"

namespace linkscope {

/// How a call of a poster or a wait ended.
enum class Posted : unsigned { ok, timed_out, outside, misaligned, in_use, failed, ended };

/// The words that a channel's two sides share, each in a cache line of its own.
enum class ControlWord : unsigned {
  credits,  // operations that are complete (see Ring), unless they lie elsewhere (Channel)
  owner,    // not 0: a poster is open
  posted,   // descriptors that earlier posters posted
  failure,  // Posted: why the server serves no longer
  stop,     // not 0: the server shall end
  waited,   // what was waited for in vain: a Waited, then the offset, what was expected and what was found
  offset,
  expected,
  found,
  completion,  // of the first element that a network card did not execute, packed
  count
};
enum class Waited : unsigned { nothing, room, completion, signal };
inline constexpr RingWord control_gap = 128, control_bytes = control_gap * static_cast<RingWord>(ControlWord::count);

/// A channel as its poster sees it: 16 words, which a kernel takes as an argument (ls_view in linkscope.h). Addresses are
/// those of the poster. Without slots and a card, it stores to and loads from the remote region itself.
struct Channel {
  RingWord local, local_bytes, remote, remote_bytes;
  RingWord slots, slot_count, slot_words;
  RingWord control, timeout_ns;
  RingWord credits;  // the address of that word of the ring
  RingWord card;     // CardQueues; 0: no network card
  RingWord unused[5];

  [[nodiscard]] LINKSCOPE_ANYWHERE RingWord word(ControlWord which) const {
    return control + control_gap * static_cast<RingWord>(which);
  }
  [[nodiscard]] LINKSCOPE_ANYWHERE Ring ring() const {
    return {slots, credits, static_cast<unsigned>(slot_count), static_cast<unsigned>(slot_words)};
  }
};
inline constexpr unsigned channel_bytes = 128;
static_assert(sizeof(Channel) == channel_bytes, "ls_view has the same size");

[[nodiscard]] LINKSCOPE_ANYWHERE bool is_inside(RingWord offset, RingWord bytes, RingWord region_bytes) {
  return offset <= region_bytes && bytes <= region_bytes - offset;
}

/// Why an operation cannot be done on regions of these sizes; ok if it can.
[[nodiscard]] LINKSCOPE_ANYWHERE Posted check_operation(const Operation& one, RingWord local_bytes,
                                                        RingWord remote_bytes) {
  if (one.verb == Verb::set || one.verb == Verb::add) {
    if (one.remote % sizeof(RingWord) != 0) return Posted::misaligned;
    return is_inside(one.remote, sizeof(RingWord), remote_bytes) ? Posted::ok : Posted::outside;
  }
  if (one.verb == Verb::none) return Posted::ok;
  if (!is_inside(one.local, one.bytes, local_bytes)) return Posted::outside;
  return is_inside(one.remote, one.bytes, remote_bytes) ? Posted::ok : Posted::outside;
}

/// Performs an operation by stores and loads of a group's threads. A word is set or added to when the operations before are
/// done. `local` and `remote` are the addresses of the regions.
template <class Memory, class Group>
LINKSCOPE_CALLED void perform_operation(Memory& memory, Group& group, const Operation& one, RingWord local,
                                        RingWord remote) {
  const RingWord here = local + one.local, there = remote + one.remote;
  const bool is_put = one.verb == Verb::put;
  if (is_put || one.verb == Verb::get)
    return memory.copy(group, is_put ? there : here, is_put ? here : there, one.bytes);
  group.after_all([&] {
    if (one.verb == Verb::set) memory.release(there, one.value);
    if (one.verb == Verb::add) memory.add(there, one.value);
  });
}

/// One user of a channel at a time: all threads of the group make the same calls. Offsets are those of the regions.
/// Operations of one poster take effect in order; data of a put may arrive in any order until a signal, `quiet` or an
/// addition follows. Sources of puts may be written again, and destinations of gets be read, after `flush`.
template <class Memory, class Group>
class Poster {
 public:
  LINKSCOPE_ANYWHERE Poster(const Channel& channel, const Memory& memory, Group group)
      : channel_{channel}, memory_{memory}, group_{group}, poster_{channel.ring()} {}

  /// in_use: the ring has another user.
  LINKSCOPE_ANYWHERE Posted open() {
    return lead([&] {
      if (!memory_.claim(channel_.word(ControlWord::owner))) return Posted::in_use;
      memory_.fence();  // the claim has no order, and the poster before left its count
      poster_.posted = memory_.acquire(channel_.word(ControlWord::posted));
      poster_.look(memory_);
      return Posted::ok;
    });
  }
  LINKSCOPE_ANYWHERE void close() {
    lead([&] {
      memory_.release(channel_.word(ControlWord::posted), poster_.posted);
      memory_.release(channel_.word(ControlWord::owner), 0);
      return Posted::ok;
    });
  }

  LINKSCOPE_ANYWHERE Posted put(RingWord remote, RingWord local, RingWord bytes) {
    return move(Verb::put, remote, local, bytes);
  }
  LINKSCOPE_ANYWHERE Posted get(RingWord local, RingWord remote, RingWord bytes) {
    return move(Verb::get, remote, local, bytes);
  }
  /// Sets a word of the remote region. Who sees it by acquiring sees the data of all earlier puts.
  LINKSCOPE_ANYWHERE Posted signal(RingWord remote, RingWord value) {
    return post_one({Verb::set, 0, remote, 0, value});
  }
  LINKSCOPE_ANYWHERE Posted add(RingWord remote, RingWord value) { return post_one({Verb::add, 0, remote, 0, value}); }
  /// A put and then a signal, in one descriptor if that has room for two operations, or with one completion of a card.
  LINKSCOPE_CALLED Posted put_signal(RingWord remote, RingWord local, RingWord bytes, RingWord word, RingWord value) {
    const Operation both[2] = {{Verb::put, local, remote, bytes, 0}, {Verb::set, 0, word, 0, value}};
    const bool together = channel_.card || (channel_.slots && channel_.slot_words > 1);
    if (together && bytes <= most_bytes_of_operation) return post(both, 2);
    const Posted wrong = check_operation(both[1], channel_.local_bytes, channel_.remote_bytes);
    if (wrong != Posted::ok) return wrong;
    const Posted done = put(remote, local, bytes);
    return done == Posted::ok ? post(both + 1, 1) : done;
  }

  LINKSCOPE_ANYWHERE Posted flush() {
    if (channel_.slots || channel_.card) return quiet();
    group_.sync();
    return Posted::ok;
  }
  /// All operations so far are done, and their data is visible to everybody.
  LINKSCOPE_CALLED Posted quiet() {
    if (channel_.card) return lead([&] { return let_card_work(Waited::completion, 0); });
    if (!channel_.slots) {
      memory_.fence();
      group_.sync();
      return Posted::ok;
    }
    return lead([&] {
      return wait(Waited::completion, 0, poster_.posted, [&] {
        poster_.look(memory_);
        return poster_.completed;
      });
    });
  }
  /// Waits until a word of the local region is at least `value`. All threads then see what its writer wrote before.
  /// `timeout_ns`: 0 for that of the channel.
  LINKSCOPE_CALLED Posted await(RingWord local, RingWord value, RingWord timeout_ns = 0) {
    if (const Posted wrong = check_word(local); wrong != Posted::ok) return wrong;
    return lead([&] {
      return wait(Waited::signal, local, value, [&] { return memory_.acquire(channel_.local + local); }, timeout_ns);
    });
  }
  /// Looks once, without a wait. `there`: whether a word of the local region is at least `value`; if it is, all threads
  /// then see what its writer wrote before.
  LINKSCOPE_CALLED Posted poll(RingWord local, RingWord value, bool& there) {
    if (const Posted wrong = check_word(local); wrong != Posted::ok) return wrong;
    there =
        group_.lead([&] { return RingWord{memory_.acquire(channel_.local + local) - value < RingWord{1} << 63}; }) != 0;
    return there ? Posted::ok
                 : lead([&] { return static_cast<Posted>(memory_.acquire(channel_.word(ControlWord::failure))); });
  }
  /// Performs what `operation` says.
  LINKSCOPE_ANYWHERE Posted post_one(const Operation& operation) { return post(&operation, 1); }

 private:
  template <class Function>
  LINKSCOPE_ANYWHERE Posted lead(Function function) {
    return static_cast<Posted>(group_.lead([&] { return static_cast<RingWord>(function()); }));
  }

  [[nodiscard]] LINKSCOPE_ANYWHERE Posted check_word(RingWord local) const {
    if (local % sizeof(RingWord) != 0) return Posted::misaligned;
    return is_inside(local, sizeof(RingWord), channel_.local_bytes) ? Posted::ok : Posted::outside;
  }

  LINKSCOPE_CALLED Posted move(Verb verb, RingWord remote, RingWord local, RingWord bytes) {
    // Larger ones are several operations.
    if (!is_inside(remote, bytes, channel_.remote_bytes) || !is_inside(local, bytes, channel_.local_bytes))
      return Posted::outside;
    constexpr RingWord most = most_bytes_of_operation / pair_bytes * pair_bytes;
    Posted done = Posted::ok;
    for (RingWord at = 0; done == Posted::ok && (at < bytes || at == 0); at += most)
      done = post_one({verb, local + at, remote + at, bytes - at < most ? bytes - at : most, 0});
    return done;
  }

  LINKSCOPE_CALLED Posted post(const Operation* operations, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      const Posted wrong = check_operation(operations[i], channel_.local_bytes, channel_.remote_bytes);
      if (wrong != Posted::ok) return wrong;
    }
    if (channel_.card) return post_to_card(operations, count);
    if (!channel_.slots) {
      LINKSCOPE_ROLLED
      for (unsigned i = 0; i < count; ++i)
        perform_operation(memory_, group_, operations[i], channel_.local, channel_.remote);
      return Posted::ok;
    }
    group_.sync();  // the server sees what all threads wrote
    return lead([&] {
      const RingWord room = poster_.posted + 1 - channel_.slot_count;
      bool posted = poster_.try_post(memory_, operations, count);
      if (posted) return Posted::ok;
      return wait(Waited::room, 0, room, [&] {
        posted = posted || poster_.try_post(memory_, operations, count);
        return posted ? room : poster_.completed;
      });
    });
  }

  LINKSCOPE_CALLED Posted post_to_card(const Operation* operations, unsigned count) {
    return lead([&] {
      CardQueues& queues = *reinterpret_cast<CardQueues*>(channel_.card);
      Posted done = static_cast<Posted>(queues.failure);
      const verbs::Word most = queues.send.blocks - count;
      if (done == Posted::ok && blocks_under_way(queues) > most) done = let_card_work(Waited::room, most);
      typename Memory::Card card;
      if (done == Posted::ok) post_elements(queues, operations, count, card);
      return done;
    });
  }
  /// Until at most `most` blocks are under way.
  LINKSCOPE_ANYWHERE Posted let_card_work(Waited what, verbs::Word most) {
    CardQueues& queues = *reinterpret_cast<CardQueues*>(channel_.card);
    const RingWord posted = queues.send.posted, expected = posted - most;
    const Posted done = wait(what, 0, expected, [&] {
      take_completions(queues);
      return queues.failure ? expected : posted - blocks_under_way(queues);
    });
    return done == Posted::ok ? static_cast<Posted>(queues.failure) : done;
  }
  /// The first error is that of the element at fault: those behind it are flushed.
  LINKSCOPE_ANYWHERE void take_completions(CardQueues& queues) {
    typename Memory::Card card;
    verbs::Completion completion;
    while (verbs::complete(queues.send, queues.completions, completion, card)) {
      if (completion.status == verbs::Status::success || queues.failure) continue;
      const bool is_gone = completion.status == verbs::Status::no_answer;
      queues.failure = static_cast<unsigned>(is_gone ? Posted::ended : Posted::failed);
      memory_.release(channel_.word(ControlWord::completion), packed(completion));
      memory_.release(channel_.word(ControlWord::failure), queues.failure);
    }
  }

  /// Calls `look` until it returns at least `expected`: numbers whose difference is below 2^63.
  template <class Look>
  LINKSCOPE_ANYWHERE Posted wait(Waited what, RingWord offset, RingWord expected, Look look, RingWord timeout_ns = 0) {
    constexpr unsigned looks =
        256;  // between two readings of the clock and of the failure, which would slow the polling
    const RingWord start = memory_.now_ns();
    RingWord found = 0;
    do {
      LINKSCOPE_ROLLED
      for (unsigned i = 0; i < looks; ++i) {
        found = look();
        if (found - expected < RingWord{1} << 63) return Posted::ok;
      }
      if (const RingWord failure = memory_.acquire(channel_.word(ControlWord::failure)))
        return static_cast<Posted>(failure);
    } while (memory_.now_ns() - start <= (timeout_ns ? timeout_ns : channel_.timeout_ns));
    const RingWord facts[4] = {static_cast<RingWord>(what), offset, expected, found};
    for (unsigned i = 0; i < 4; ++i) memory_.release(channel_.word(ControlWord::waited) + i * control_gap, facts[i]);
    return Posted::timed_out;
  }

  Channel channel_;
  Memory memory_;
  Group group_;
  DescriptorPoster poster_;
};

}  // namespace linkscope
