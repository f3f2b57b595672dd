// The program of a stream of puts by several blocks (benchmarks/put_get.cpp), in every interleaving of its actors and in a
// memory that reorders whatever is not ordered. Its ring has two slots here. Each error that is planted must be found.
#include <algorithm>
#include <map>
#include <utility>

#include "base/actor_ops.hpp"
#include "benchmarks/case.hpp"
#include "doctest.h"
#include "model_checker.hpp"

using namespace linkscope;
using namespace linkscope::model;

namespace {

constexpr u32 slots = 2, messages = 3, blocks = 2;

/// What a planted error changes of what the actors do.
struct Plants {
  bool sets_behind_stores = true, release = true, waits_for_room = true, a_word_each = true,
       answers_behind_reads = true;
};

Program stream_of_puts() {
  Case c{"put", Engine::sm, parse_place("gpu:0"), parse_place("gpu:1"), MemKind::device, MemKind::device, 256, 0, {}};
  c.params = {{"blocks", std::to_string(blocks)}};
  auto program = build_program(c);
  for (auto& actor : program.actors)
    for (auto& step : actor.loop) {
      if (auto* move = std::get_if<Move>(&step)) move->to.slices = slots;
      if (auto* wait = std::get_if<Wait>(&step); wait && wait->value != 1) wait->value = u64{1} - slots;
    }
  return program;
}

const Move* move_of(const linkscope::Actor& actor) {
  for (const auto& step : actor.loop)
    if (const auto* move = std::get_if<Move>(&step)) return move;
  return nullptr;
}

/// A model of the memory that the steps of a program name: a pair for each word, and one for the part of a block in a slot.
class Model {
 public:
  explicit Model(const Plants& plants) : plants_{plants} {
    for (const auto& actor : program_.actors)
      for (const auto& step : actor.loop) {
        if (const auto* move = std::get_if<Move>(&step))
          for (u32 i = 0; i < slots; ++i) add(move->to.region, move->to.offset_at(i));
        if (const auto* wait = std::get_if<Wait>(&step))
          for (u64 at = 0; at < wait->word.bytes; at += sizeof(u64)) add(wait->word.region, wait->word.offset + at);
      }
  }

  Outcome explore() const {
    std::vector<model::Actor> actors;
    for (const auto& actor : program_.actors)
      actors.emplace_back([this, &actor](Replay& replay) {
        for (u32 i = 0; i < messages; ++i) move_of(actor) ? give(replay, actor, i) : take(replay, actor, i);
      });
    return Explorer{actors, static_cast<unsigned>(places_.size())}.run();
  }

 private:
  void add(u32 region, u64 offset) { places_.try_emplace({region, offset}, places_.size() * pair_bytes); }
  [[nodiscard]] RingWord at(const Span& span, u64 behind = 0) const {
    return places_.at({span.region, span.offset + behind});
  }
  [[nodiscard]] RingWord part(const Move& move, u32 iteration) const {
    return places_.at({move.to.region, move.to.offset_at(iteration)});
  }

  void give(Replay& replay, const linkscope::Actor& actor, u32 iteration) const {
    auto steps = actor.loop;  // wait, move, set
    if (!plants_.sets_behind_stores) std::swap(steps[1], steps[2]);
    for (const auto& step : steps) {
      if (const auto* wait = std::get_if<Wait>(&step); wait && plants_.waits_for_room) await(replay, *wait, iteration);
      if (const auto* move = std::get_if<Move>(&step)) replay.store_pair(part(*move, iteration), {iteration + 1, 0});
      if (const auto* set = std::get_if<Set>(&step)) tell(replay, *set, iteration);
    }
  }
  void take(Replay& replay, const linkscope::Actor& actor, u32 iteration) const {
    await(replay, std::get<Wait>(actor.loop[0]), iteration);
    const auto& answer = std::get<Set>(actor.loop[1]);
    if (!plants_.answers_behind_reads) tell(replay, answer, iteration);
    for (const auto& giver : program_.actors)
      if (const Move* move = move_of(giver)) replay.read_later(part(*move, iteration), iteration + 1);
    if (plants_.answers_behind_reads) tell(replay, answer, iteration);
  }
  void await(Replay& replay, const Wait& wait, u32 iteration) const {
    const u64 value = wait.value + iteration * wait.step, count = wait.word.bytes / sizeof(u64);
    replay.until([&] {
      u64 sum = 0;
      bool all = true;
      for (u64 i = 0; i < count; ++i) {
        const u64 found = replay.acquire(at(wait.word, i * sizeof(u64)));
        sum += found;
        all = all && has_come(found, value);
      }
      return plants_.a_word_each ? all : has_come(sum, value * count);
    });
  }
  void tell(Replay& replay, const Set& set, u32 iteration) const {
    const u64 value = set.value + iteration * set.step;
    if (plants_.release) replay.release(at(set.word), value);
    else replay.store_pair(at(set.word), {value, 0});
  }

  const Plants plants_;
  const Program program_ = stream_of_puts();
  std::map<std::pair<u32, u64>, RingWord> places_;
};

Outcome explore(bool Plants::* taken = nullptr) {
  Plants plants;
  if (taken) plants.*taken = false;
  return Model{plants}.explore();
}

}  // namespace

TEST_CASE("a put of several blocks is whole when its receiver sees it, and stays until that has answered") {
  const auto outcome = explore();
  CHECK(outcome.wrong == "");
  CHECK(outcome.states > 1000);
}

TEST_CASE("the checker finds each error of a stream of puts: one word for all blocks among them") {
  constexpr auto torn = "a read of data returned what another message has there";
  for (const auto taken : {&Plants::sets_behind_stores, &Plants::release, &Plants::waits_for_room, &Plants::a_word_each,
                           &Plants::answers_behind_reads})
    CHECK(explore(taken).wrong == torn);
}
