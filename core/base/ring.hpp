// Rings that two sides exchange words through without a lock, a doorbell or a fence for each message. GPUs and CPUs store
// and load an aligned word of 16 bytes at once, so a reader that sees a part of it sees all of it. Such a word carries its
// payload together with what says that it is there. The same templates are compiled for CPU threads, for device code and
// for the model checker of the tests, so nothing but the language is used here.
//
// A Memory brings `load_pair` and `store_pair` of 16 bytes without any order, `acquire` and `release` of 8 bytes, and
// `fence`, which orders all earlier accesses before all later ones. A Group is the threads that act together: `lane`,
// `size`, `sync`, `all`, and `lead`, whose function the first thread calls for all.
#pragma once

#ifdef __CUDACC__
#define LINKSCOPE_ANYWHERE __device__ __forceinline__
// A compiler of device code repeats the body of a poll 256 times, and each body in all functions that post.
#define LINKSCOPE_CALLED __device__ __noinline__
#define LINKSCOPE_ROLLED _Pragma("unroll 1")
#else
#define LINKSCOPE_ANYWHERE inline
#define LINKSCOPE_CALLED inline
#define LINKSCOPE_ROLLED
#endif

namespace linkscope {

using RingWord = unsigned long long;  // a number or an address

inline constexpr unsigned pair_bytes = 16;
struct alignas(pair_bytes) Pair {
  RingWord first, second;
};

/// A single thread.
struct OneThread {
  static LINKSCOPE_ANYWHERE unsigned lane() { return 0; }
  static LINKSCOPE_ANYWHERE unsigned size() { return 1; }
  static LINKSCOPE_ANYWHERE void sync() {}
  static LINKSCOPE_ANYWHERE bool all(bool mine) { return mine; }
  template <class Function>
  static LINKSCOPE_ANYWHERE RingWord lead(Function function) {
    return function();
  }
  /// Calls the function in one thread, when all threads have come here; the others go on.
  template <class Function>
  static LINKSCOPE_ANYWHERE void after_all(Function function) {
    function();
  }
};

/// A ring as one side sees it. `slots`: the address of `count` slots of `words` pairs each, zero at first. `credits`: the
/// address of the pair whose first word says how many slots the other side has given back, zero at first.
struct Ring {
  RingWord slots, credits;
  unsigned count, words;

  [[nodiscard]] LINKSCOPE_ANYWHERE RingWord at(RingWord number, unsigned word) const {
    return slots + (number % count * words + word) * pair_bytes;
  }
};

// --- messages ---------------------------------------------------------------------------------------------------------

// Each pair carries 8 bytes of the message and a tag: the message's number from 1, and its bytes. A number never comes back,
// so a pair that short messages left out for several laps is not mistaken for a new one.
inline constexpr unsigned message_bytes_bits = 16, most_message_bytes = 65528;

[[nodiscard]] LINKSCOPE_ANYWHERE RingWord message_tag(RingWord number, unsigned bytes) {
  return (number + 1) << message_bytes_bits | bytes;
}
/// Pairs of a message. An empty message has one.
[[nodiscard]] LINKSCOPE_ANYWHERE unsigned message_words(unsigned bytes) { return bytes <= 8 ? 1 : (bytes + 7) / 8; }

struct MessageSender {
  Ring ring;
  RingWord sent = 0, given_back = 0;  // as far as this side knows

  template <class Memory>
  [[nodiscard]] LINKSCOPE_ANYWHERE bool has_room(Memory& memory) {
    if (sent - given_back >= ring.count) given_back = memory.acquire(ring.credits);
    return sent - given_back < ring.count;
  }

  /// Sends `bytes`, at most ring.words * 8; `payload(i)` is their i-th word of 8 bytes. False: the ring is full.
  template <class Memory, class Group, class Payload>
  [[nodiscard]] LINKSCOPE_ANYWHERE bool try_send(Memory& memory, Group group, unsigned bytes, Payload payload) {
    if (!group.lead([&] { return RingWord{has_room(memory)}; })) return false;
    const RingWord tag = message_tag(sent, bytes);
    for (unsigned i = group.lane(); i < message_words(bytes); i += group.size())
      memory.store_pair(ring.at(sent, i), Pair{payload(i), tag});
    ++sent;
    return true;
  }
};

struct MessageReceiver {
  Ring ring;
  RingWord received = 0;
  unsigned bytes = 0;  // of the latest message

  /// Receives the next message: `sink(i, word)` takes its i-th word of 8 bytes. False: not all of it is there, and the sink
  /// gets the words again.
  template <class Memory, class Group, class Sink>
  [[nodiscard]] LINKSCOPE_ANYWHERE bool try_receive(Memory& memory, Group group, Sink sink) {
    const unsigned mine = group.lane() < ring.words ? group.lane() : 0;
    const Pair head = memory.load_pair(ring.at(received, 0));
    Pair pair = mine ? memory.load_pair(ring.at(received, mine)) : head;
    bool there = head.second >> message_bytes_bits == received + 1;
    const unsigned found = head.second & ((1u << message_bytes_bits) - 1);
    for (unsigned i = group.lane(); there && i < message_words(found); i += group.size()) {
      if (i != mine) pair = memory.load_pair(ring.at(received, i));
      there = pair.second == head.second;
      if (there) sink(i, pair.first);
    }
    if (!group.all(there)) return false;
    bytes = found;
    ++received;
    give_back(memory, group);
    return true;
  }

 private:
  // Half a ring at once. No fence orders the loads before: all threads found the message's tag in the words that they
  // loaded, so the loads took place before the sender writes these words again.
  template <class Memory, class Group>
  LINKSCOPE_ANYWHERE void give_back(Memory& memory, Group group) {
    if (received % ((ring.count + 1) / 2) != 0) return;
    if (group.lane() == 0) memory.store_pair(ring.credits, Pair{received, 0});
  }
};

// --- descriptors ------------------------------------------------------------------------------------------------------

/// What the server of a ring of descriptors does. `put`: local to remote; `get`: remote to local; `set` and `add`: a word of
/// the remote region.
enum class Verb : unsigned { none, put, get, set, add };

/// One operation, which fits a pair without its highest bit. Offsets are those of the channel's two regions.
struct Operation {
  Verb verb = Verb::none;
  RingWord local = 0, remote = 0;  // set, add: only remote
  RingWord bytes = 0;              // put, get
  RingWord value = 0;              // set, add
};

inline constexpr unsigned offset_bits = 48, bytes_low_bits = 16, verb_shift = 60;
inline constexpr RingWord most_bytes_of_operation = (RingWord{1} << 28) - 1,
                          most_offset = (RingWord{1} << offset_bits) - 1, valid_bit = RingWord{1} << 63;

[[nodiscard]] LINKSCOPE_ANYWHERE Pair packed(const Operation& one) {
  const RingWord verb = static_cast<RingWord>(one.verb) << verb_shift;
  if (one.verb == Verb::set || one.verb == Verb::add) return {one.value, one.remote | verb};
  return {one.remote | one.bytes << offset_bits, one.local | one.bytes >> bytes_low_bits << offset_bits | verb};
}

[[nodiscard]] LINKSCOPE_ANYWHERE Operation unpacked(const Pair& pair) {
  Operation one;
  one.verb = static_cast<Verb>(pair.second >> verb_shift & 7);
  if (one.verb == Verb::set || one.verb == Verb::add) {
    one.value = pair.first;
    one.remote = pair.second & most_offset;
    return one;
  }
  one.remote = pair.first & most_offset;
  one.local = pair.second & most_offset;
  one.bytes = pair.first >> offset_bits | (pair.second >> offset_bits & 0xFFF) << bytes_low_bits;
  return one;
}

/// What the valid bit of a slot's pairs is when descriptor `number` is there. It flips every lap. All pairs of a slot are
/// written in every lap, so none of them has the bit of two laps ago.
[[nodiscard]] LINKSCOPE_ANYWHERE RingWord valid_in_lap(const Ring& ring, RingWord number) {
  return number / ring.count % 2 ? 0 : valid_bit;
}

inline constexpr unsigned most_descriptor_words = 8;  // pairs: a descriptor has 16 to 128 bytes

struct DescriptorPoster {
  Ring ring;
  RingWord posted = 0, completed = 0;  // as far as this side knows

  template <class Memory>
  LINKSCOPE_ANYWHERE void look(Memory& memory) {
    completed = memory.acquire(ring.credits);
  }

  /// One thread posts a descriptor of up to ring.words operations. The fence lets the server see what the poster wrote
  /// before. False: the ring is full.
  template <class Memory>
  [[nodiscard]] LINKSCOPE_ANYWHERE bool try_post(Memory& memory, const Operation* operations, unsigned count) {
    if (posted - completed >= ring.count) look(memory);
    if (posted - completed >= ring.count) return false;
    memory.fence();
    const RingWord valid = valid_in_lap(ring, posted);
    LINKSCOPE_ROLLED
    for (unsigned i = 0; i < ring.words; ++i) {
      Pair pair = packed(i < count ? operations[i] : Operation{});
      pair.second |= valid;
      memory.store_pair(ring.at(posted, i), pair);
    }
    ++posted;
    return true;
  }
};

struct DescriptorServer {
  Ring ring;
  RingWord taken = 0;

  /// One thread takes the next descriptor, of ring.words operations. The fence lets it see what the poster wrote before.
  /// False: none is there.
  template <class Memory>
  [[nodiscard]] LINKSCOPE_ANYWHERE bool try_take(Memory& memory, Operation* operations) {
    LINKSCOPE_ROLLED
    for (unsigned i = 0; i < ring.words; ++i) {
      const Pair pair = memory.load_pair(ring.at(taken, i));
      if ((pair.second & valid_bit) != valid_in_lap(ring, taken)) return false;
      operations[i] = unpacked(pair);
    }
    memory.fence();
    ++taken;
    return true;
  }

  /// All operations of the descriptors that were taken are done. The release orders them before; it also gives back slots.
  template <class Memory>
  LINKSCOPE_ANYWHERE void complete(Memory& memory) {
    memory.release(ring.credits, taken);
  }
};

}  // namespace linkscope
