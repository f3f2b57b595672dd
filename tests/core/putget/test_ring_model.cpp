// Every interleaving of the two sides of a small ring, in a memory that reorders whatever is not ordered. Each error that is
// planted must be found, which shows that the checker can see it.
#include <array>

#include "doctest.h"
#include "model_checker.hpp"

using namespace linkscope;
using namespace linkscope::model;

namespace {

constexpr RingWord credits = 0, first_slot = pair_bytes;

/// What a planted error changes of the accesses that a side makes.
struct Plants {
  bool fence_of_poster = true, fence_of_server = true, release = true, flips = true, whole_pairs = true,
       looks_at_credits = true;
};

/// The memory of a side with the planted errors. `lap` is odd in every second lap of this side.
struct Planted {
  Replay& memory;
  const Plants& plants;
  bool fences;
  std::function<RingWord()> lap;

  Pair load_pair(RingWord at) const {
    Pair pair;
    if (plants.whole_pairs) {
      pair = memory.load_pair(at);
    } else {
      pair.second = memory.load_pair(at * 2).second;
      pair.first = memory.load_pair(at * 2 + pair_bytes).first;
    }
    return without_flips(pair);
  }
  void store_pair(RingWord at, const Pair& value) const {
    const Pair stored = without_flips(value);
    if (plants.whole_pairs) return memory.store_pair(at, stored);
    memory.store_pair(at * 2 + pair_bytes, {stored.first, 0});
    memory.store_pair(at * 2, {0, stored.second});
  }
  [[nodiscard]] RingWord acquire(RingWord at) const { return memory.acquire(at); }
  void release(RingWord at, RingWord value) const {
    if (plants.release) memory.release(at, value);
    else memory.store_pair(at, {value, 0});
  }
  void fence() const {
    if (fences) memory.fence();
  }

 private:
  [[nodiscard]] Pair without_flips(Pair pair) const {
    if (!plants.flips && lap() % 2) pair.second ^= valid_bit;
    return pair;
  }
};

// --- messages ---------------------------------------------------------------------------------------------------------

constexpr unsigned messages = 9;

/// Messages of one and two words in turn, so that a slot keeps words of earlier laps.
unsigned bytes_of(RingWord number) { return number / 2 % 2 ? 8 : 16; }
RingWord payload_of(RingWord number, unsigned word) { return 100 * (number + 1) + word; }

Outcome explore_messages(unsigned slots, const Plants& plants = {}) {
  const Ring ring{first_slot, credits, slots, 2};
  const Actor sender = [=, &plants](Replay& replay) {
    MessageSender side{ring};
    Planted memory{replay, plants, true, [] { return RingWord{0}; }};
    for (RingWord i = 0; i < messages; ++i)
      replay.until([&] {
        if (!plants.looks_at_credits) side.given_back = side.sent;
        return side.try_send(memory, OneThread{}, bytes_of(i), [&](unsigned word) { return payload_of(i, word); });
      });
  };
  const Actor receiver = [=, &plants](Replay& replay) {
    MessageReceiver side{ring};
    Planted memory{replay, plants, true, [] { return RingWord{0}; }};
    for (RingWord i = 0; i < messages; ++i) {
      std::array<RingWord, 2> found{};
      replay.until([&] {
        return side.try_receive(memory, OneThread{}, [&](unsigned word, RingWord value) { found.at(word) = value; });
      });
      Replay::check(side.bytes == bytes_of(i), "a message has the length of another");
      for (unsigned word = 0; word < message_words(side.bytes); ++word)
        Replay::check(found.at(word) == payload_of(i, word), "a message has words of another");
    }
  };
  const unsigned locations = 1 + slots * 2;
  return Explorer{{sender, receiver}, plants.whole_pairs ? locations : 2 * locations + 2}.run();
}

// --- descriptors ------------------------------------------------------------------------------------------------------

constexpr unsigned descriptors = 7;

/// The poster writes data and posts a put of it, and writes the data again when the put is complete. The server reads
/// the data that the descriptor names.
Outcome explore_descriptors(unsigned slots, unsigned words, const Plants& plants = {}) {
  const Ring ring{first_slot, credits, slots, words};
  const RingWord data = first_slot + slots * words * pair_bytes;
  const auto place = [=](RingWord number) { return data + number % slots * pair_bytes; };
  const Actor poster = [=, &plants](Replay& replay) {
    DescriptorPoster side{ring};
    Planted memory{replay, plants, plants.fence_of_poster, [&] { return side.posted / ring.count; }};
    for (RingWord i = 0; i < descriptors; ++i) {
      replay.until([&] {
        if (i >= slots) side.look(memory);
        return side.completed + slots > i;
      });
      replay.store_pair(place(i), {i + 1, 0});
      const Operation put{Verb::put, place(i), 7 * i, 8, 0};
      replay.until([&] { return side.try_post(memory, &put, 1); });
    }
  };
  const Actor server = [=, &plants](Replay& replay) {
    DescriptorServer side{ring};
    Planted memory{replay, plants, plants.fence_of_server, [&] { return side.taken / ring.count; }};
    for (RingWord i = 0; i < descriptors; ++i) {
      std::array<Operation, most_descriptor_words> found{};
      replay.until([&] { return side.try_take(memory, found.data()); });
      Replay::check(found[0].verb == Verb::put && found[0].remote == 7 * i && found[0].local == place(i),
                    "a descriptor is that of another operation");
      replay.read_later(place(i), i + 1);
      side.complete(memory);
    }
  };
  return Explorer{{poster, server}, 1 + slots * words + slots}.run();
}

}  // namespace

TEST_CASE("a ring of messages delivers each message once, whole and in order, in every interleaving") {
  for (const unsigned slots : {1, 2, 3}) {
    CAPTURE(slots);
    const auto outcome = explore_messages(slots);
    CHECK(outcome.wrong == "");
    CHECK(outcome.states > 40);
  }
}

TEST_CASE("a ring of descriptors shows the server the data of each put, and keeps it until the put is complete") {
  for (const unsigned slots : {1, 2, 3})
    for (const unsigned words : {1, 2}) {
      CAPTURE(slots);
      CAPTURE(words);
      const auto outcome = explore_descriptors(slots, words);
      CHECK(outcome.wrong == "");
      CHECK(outcome.states > 40);
    }
}

TEST_CASE("the checker finds a sender that does not wait for room") {
  Plants plants;
  plants.looks_at_credits = false;
  CHECK(explore_messages(2, plants).wrong != "");
}

TEST_CASE("the checker finds words that are stored in two halves") {
  Plants plants;
  plants.whole_pairs = false;
  CHECK(explore_messages(2, plants).wrong == "a message has words of another");
}

TEST_CASE("the checker finds a valid bit that does not flip") {
  Plants plants;
  plants.flips = false;
  CHECK(explore_descriptors(2, 1, plants).wrong != "");
}

TEST_CASE("the checker finds each fence and release that is taken away") {
  Plants no_fence_of_poster, no_fence_of_server, no_release;
  no_fence_of_poster.fence_of_poster = false;
  no_fence_of_server.fence_of_server = false;
  no_release.release = false;
  for (const auto* plants : {&no_fence_of_poster, &no_fence_of_server, &no_release})
    CHECK(explore_descriptors(2, 1, *plants).wrong == "a read of data returned what another message has there");
}
