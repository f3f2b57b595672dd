// Every interleaving of a poster of elements and a card that reads them, in a memory that reorders whatever is not ordered.
#include <array>

#include "doctest.h"
#include "model_checker.hpp"
#include "putget/verbs.hpp"

using namespace linkscope;
using namespace linkscope::model;

namespace {

constexpr verbs::Word blocks = 4, elements = 3;
constexpr RingWord record = blocks * verbs::block_bytes, doorbell = record + pair_bytes;
constexpr unsigned locations = doorbell / pair_bytes + 1;

/// A poster's way to the queue. Of the two fences of a `submit`, either may be missing.
struct PostedMemory {
  Replay& memory;
  std::array<bool, 2> fences{true, true};
  unsigned fence_number = 0;

  void store(RingWord at, const verbs::Segment& segment) const { memory.store_pair(at, pair_of(segment)); }
  void fence() {
    if (fences.at(fence_number++ % 2)) memory.fence();
  }
  void record(RingWord at, verbs::Word value) const { memory.store_pair(at, {value, 0}); }
  void ring(RingWord at, RingWord value) const { memory.store_pair(at, {value, 0}); }
  [[nodiscard]] static unsigned char byte(RingWord) { return 0; }  // no element carries its payload
  [[nodiscard]] static Pair pair_of(const verbs::Segment& segment) {
    const auto& words = segment.words;
    return {words[0] | RingWord{words[1]} << 32, words[2] | RingWord{words[3]} << 32};
  }
};

verbs::Request request_of(verbs::Word number) {
  verbs::Request request;
  request.remote = 4096 + number;
  request.local = 8192 + number;
  request.bytes = 8 + number;
  return request;
}

/// The card looks at the record when the doorbell rings, and executes all that the record announces.
void serve(Replay& replay) {
  for (verbs::Word executed = 0; executed < elements;) {
    verbs::Word rung = 0;
    replay.until([&] {
      const RingWord found = replay.acquire(doorbell);
      rung = found ? (verbs::swapped(static_cast<verbs::Word>(found)) >> 8 & 0xffff) + 1 : 0;
      return rung > executed;
    });
    const auto posted = verbs::swapped(static_cast<verbs::Word>(replay.acquire(record)));
    Replay::check(posted >= rung, "the record is older than the doorbell");
    for (; executed < posted; ++executed) {
      const auto request = request_of(executed);
      PostedMemory none{replay};
      for (verbs::Word part = 0; part < verbs::segments_of(request); ++part) {
        const auto expected = part == 0 ? verbs::control(request, 7, executed, verbs::segments_of(request))
                                        : verbs::segment_of(request, part, none);
        const Pair found = replay.load_pair(executed * verbs::block_bytes + part * verbs::segment_bytes),
                   wanted = PostedMemory::pair_of(expected);
        Replay::check(found.first == wanted.first && found.second == wanted.second,
                      "an element is older than the record that announces it");
      }
    }
  }
}

Outcome explore(std::array<bool, 2> fences = {true, true}) {
  const Actor poster = [=](Replay& replay) {
    PostedMemory memory{replay, fences};
    verbs::SendQueue queue;
    queue.blocks = blocks;
    queue.number = 7;
    queue.record = record;
    queue.doorbell = doorbell;
    for (verbs::Word i = 0; i < elements; ++i) {
      (void)verbs::post(queue, request_of(i), memory);
      verbs::submit(queue, memory);
    }
  };
  return Explorer{{poster, serve}, locations}.run();
}

}  // namespace

TEST_CASE("a card finds each element behind its record, and the record behind its doorbell, in every interleaving") {
  const auto outcome = explore();
  CHECK(outcome.wrong == "");
  CHECK(outcome.states > 100);
}

TEST_CASE("the checker finds each fence of a submit that is taken away") {
  CHECK(explore({false, true}).wrong == "an element is older than the record that announces it");
  CHECK(explore({true, false}).wrong == "the record is older than the doorbell");
}
