// Actors that perform ops: which steps are ops, sequence numbers, origins, and the cost of ops on the simulation.
#include <doctest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/actor_ops.hpp"
#include "base/error.hpp"
#include "program/origin.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

/// A block of gpu:0 that runs these steps on region 0 (its own memory), 1 (pinned memory of numa:0) and 2 (words there).
Program of_block(std::vector<Step> loop, u32 threads = 512) {
  Program p;
  p.regions = {{gpu(0), MemKind::device, 8_MiB, Content::pattern},
               {numa(0), MemKind::pinned, 8_MiB, Content::poison},
               {numa(0), MemKind::pinned, 4_KiB, Content::zero}};
  p.actors = {{gpu(0), ActorKind::gpu_block, Clock::event, {}, 0, {}, std::move(loop), threads}};
  return p;
}

Move put(u64 bytes) { return {{0, 0, bytes}, {1, 0, bytes}, Engine::sm}; }

/// What a table asks of its memory, as text. The `failing`-th wait is in vain, counted from 1.
struct Asked {
  std::vector<std::string> calls;
  u32 failing = 0;

  void note(const char* what, std::initializer_list<Word> numbers) {
    std::string call = what;
    for (const Word number : numbers) call += " " + std::to_string(number);
    calls.push_back(call);
  }
  bool waits() { return failing == 0 || --failing != 0; }
  bool wait(Word first, Word count, Word value, Word timeout_ns) {
    note("wait", {first, count, value, timeout_ns});
    return waits();
  }
  bool receive(const ReadyOp& at, Word timeout_ns) {
    note("receive", {at.from, at.to, at.bytes, at.value, timeout_ns});
    return waits();
  }
  bool take(const ActorOp& op, Word iteration) {
    note("take", {op.ring, iteration});
    return waits();
  }
  void send(const ReadyOp& at) { note("send", {at.from, at.to, at.bytes, at.value}); }
  void set(Word to, Word value) { note("set", {to, value}); }
  void add(Word to, Word value) { note("add", {to, value}); }
  void fence() { note("fence", {}); }
  void copy(Word to, Word from, Word bytes) { note("copy", {to, from, bytes}); }
  void copy_tma(Word to, Word from, Word bytes) { note("copy_tma", {to, from, bytes}); }
  void load(Word from, Word bytes) { note("load", {from, bytes}); }
  void store(Word to, Word bytes, Word seed, Word first) { note("store", {to, bytes, seed, first}); }
  void post(const ActorOp& op, Word iteration) { note("post", {op.ring, iteration}); }
  void copy_taken(const ActorOp& op) { note("copy_taken", {op.ring}); }
  void set_taken(const ActorOp& op) { note("set_taken", {op.ring}); }
};

constexpr u32 kinds = static_cast<u32>(OpKind::set_taken) + 1;

/// An op whose numbers differ from those of all others.
ActorOp op_of(u32 kind, Word seed) {
  ActorOp op{};
  op.kind = static_cast<OpKind>(kind);
  op.from = {1000 * seed, 64, 1 + seed % 3};
  op.to = {1000 * seed + 500, 32, 1 + seed % 4};
  op.bytes = 8 * (seed + 1);
  op.value = 7 * seed;
  op.step = 1 + seed % 2;
  op.timeout_ns = 100 + seed;
  op.seed = seed;
  op.ring = seed;
  return op;
}

}  // namespace

TEST_CASE(
    "a table performs each op once an iteration in its order, also behind ops that wait, until one waits in vain") {
  for (const u32 count : {1u, 2u, 5u, most_actor_ops})
    for (u32 shift = 0; shift < kinds; ++shift) {
      std::vector<ActorOp> ops;
      for (u32 i = 0; i < count; ++i) ops.push_back(op_of((shift + i * 3) % kinds, i + 1));
      constexpr Word first = 5, passes = 4;
      Asked one_by_one, all;
      for (Word i = first; i < first + passes; ++i)
        for (const auto& op : ops) CHECK(perform(ready(op, i), op, i, one_by_one));
      std::vector<Word> ended;
      CHECK(perform_each(ops.data(), count, first, passes, all, [&](Word i) { ended.push_back(i); }) == 0);
      CHECK(all.calls == one_by_one.calls);
      CHECK(ended == std::vector<Word>{0, 1, 2, 3});
      u32 waiting = 0;
      for (const auto& op : ops) waiting += waits(op.kind);
      if (waiting == 0) continue;
      Asked failing{{}, waiting + 1};  // the first of the second iteration
      u32 at = 0;
      while (!waits(ops[at].kind)) ++at;
      CHECK(perform_all(ops.data(), count, first, passes, failing) == (first + 1) * count + at + 1);
      CHECK(failing.calls.size() == count + at + 1);
    }
  Asked nothing;
  CHECK(perform_all(nullptr, 0, 0, 3, nothing) == 0);
}

TEST_CASE("words are sequence numbers: a value below zero has come from the start") {
  CHECK(has_come(0, 0));
  CHECK(has_come(5, 5));
  CHECK(has_come(6, 5));
  CHECK_FALSE(has_come(4, 5));
  CHECK(has_come(0, Word{1} - 3));
  CHECK(has_come(2, ~Word{0}));
  CHECK_FALSE(has_come(~Word{0}, 2));
}

TEST_CASE("a block's steps are ops, and others are refused with a reason") {
  using enum Access::Dir;
  const auto refused = [](const Step& step, const char* words) {
    CHECK_THROWS_WITH_AS(validate(of_block({step})), doctest::Contains(words), Error);
  };
  CHECK_NOTHROW(validate(of_block({put(64), Fence{}, Set{{2, 0, word}, 1, 1}, Wait{{2, 0, word}, 1, 1},
                                   Kernel{KernelId::read, {}, 0, {{{0, 0, 64}, read}}},
                                   Kernel{KernelId::write, {}, 0, {{{1, 0, 64}, write}}}})));
  auto move = put(64);
  move.engine = Engine::ce;
  refused(move, "a gpu_block that performs ops copies by engine sm, and not by ce");
  move = put(64);
  move.by = gpu(1);
  refused(move, "makes its own copies");
  refused(Kernel{KernelId::add, {}, 0, {{{0, 0, 64}}}}, "the kernel 'add' is no op");
  refused(Kernel{KernelId::read, {}, 0, {{{0, 0, 64}, read, Access::Pattern::strided, 8, 32}}},
          "in its linear form only");
  refused(Opaque{"cublas_gemm", "f32", {1, 1, 1}, {}}, "uses no libraries");
  CHECK_THROWS_WITH_AS(validate(of_block({put(64)}, 2000)), doctest::Contains("1 to 1024 threads"), Error);
}

TEST_CASE("the text of a program names a block's threads and its fences") {
  const auto text = to_text(of_block({put(64), Fence{}}, 96));
  CHECK(text.find("actor a0 gpu_block gpu:0 clock event of 96 threads") != std::string::npos);
  CHECK(text.find("loop fence") != std::string::npos);
}

TEST_CASE("data that passes through buffers comes from the pattern at their beginning") {
  const Span source{0, 0, 64, 64, 8}, buffer{1, 0, 64, 64, 2}, target{2, 0, 64, 64, 8};
  Program p;
  p.regions = {{gpu(0), MemKind::device, 512, Content::pattern},
               {numa(0), MemKind::pinned, 128, Content::poison},
               {gpu(1), MemKind::device, 512, Content::poison}};
  Actor fills, empties;
  fills.loop = {Move{source, buffer}};
  empties.loop = {Move{buffer, target}};
  p.actors = {fills, empties};
  CHECK(pattern_of(p, p.actors[1], std::get<Move>(p.actors[1].loop[0])).region == 0);
  CHECK(pattern_of(p, p.actors[0], std::get<Move>(p.actors[0].loop[0])).region == 0);
  // Two buffers that fill each other have no beginning.
  p.actors[0].loop = {Move{target, buffer}};
  CHECK(p.regions[pattern_of(p, p.actors[1], std::get<Move>(p.actors[1].loop[0])).region].content == Content::poison);
}

TEST_CASE("ops of a block need no launch, and a fence takes the way to its farthest store and back") {
  const auto sim = make_sim(toy(), 1);
  const double bare = slope(*sim, of_block({put(64)})), fenced = slope(*sim, of_block({put(64), Fence{}}));
  CHECK((fenced - bare) * 1e6 == about(1));  // a bus of 0.5 us
  // The load from the GPU's memory takes 0.5 us and the store's way 0.5 us; a kernel would add its launch of 2 us.
  CHECK(bare * 1e6 == about(1).epsilon(0.05));
}

TEST_CASE("a fence waits for stores, and not for loads over the same link") {
  const auto sim = make_sim(toy(), 1);
  const Move get{{1, 0, 64}, {0, 0, 64}, Engine::sm};
  CHECK(slope(*sim, of_block({get, Fence{}})) * 1e6 == about(slope(*sim, of_block({get})) * 1e6));
}

TEST_CASE("a block with few threads copies more slowly than the link, in proportion to its threads") {
  const auto sim = make_sim(toy(), 1);
  const double few = slope(*sim, of_block({put(1_MiB)}, 16)), more = slope(*sim, of_block({put(1_MiB)}, 32));
  CHECK((few - 1e-6) / (more - 1e-6) == about(2).epsilon(0.01));
}

TEST_CASE("in the simulation a wait for several words ends when the last has come, in whatever order they are set") {
  const auto sim = make_sim(toy(), 1);
  // gpu:0 sets words 0 and 1 of numa:0 behind a short and a long put. A CPU thread waits for words and answers.
  const auto seconds = [&](u64 first_put, u64 second_put, u64 offset, u64 words) {
    auto p = of_block({put(first_put), Set{{2, 0, word}, 1, 1}, put(second_put), Set{{2, word, word}, 1, 1},
                       Wait{{2, 256, word}, 1, 1}});
    p.actors.push_back({numa(0), ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}});
    p.actors[1].loop = {Wait{{2, offset, words * word}, 1, 1}, Set{{2, 256, word}, 1, 1}};
    p.flows = {{0, gpu(0), numa(0), MemKind::device, MemKind::pinned, first_put + second_put}};
    return slope(*sim, p);
  };
  const double second = seconds(64, 1_MiB, word, 1), both = seconds(64, 1_MiB, 0, 2);
  CHECK(both * 1e6 == about(second * 1e6));
  CHECK(seconds(1_MiB, 64, 0, 2) * 1e6 == about(both * 1e6).epsilon(0.01));
}

TEST_CASE("a span of a wait has whole words") {
  CHECK_NOTHROW(validate(of_block({Wait{{2, 0, 3 * word}, 1, 1}})));
  CHECK_THROWS_WITH_AS(validate(of_block({Wait{{2, 0, 12}, 1, 1}})), doctest::Contains("not whole words of 8 B"),
                       Error);
  CHECK_THROWS_WITH_AS(validate(of_block({Set{{2, 0, 16}, 1, 1}})), doctest::Contains("not a word of 8 B"), Error);
}

TEST_CASE("a ring whose consumer does not wait for its producer delivers wrong data, and the simulation finds it") {
  auto p = of_block({put(1_MiB), Set{{2, 0, word}, 1, 1}});
  p.regions.push_back({numa(0), MemKind::pageable, 1_MiB, Content::poison});
  p.actors.push_back({numa(0),
                      ActorKind::cpu_thread,
                      Clock::host,
                      {},
                      0,
                      {},
                      {Wait{{2, 0, word}, 1, 1}, Move{{1, 0, 1_MiB}, {3, 0, 1_MiB}, Engine::cpu}}});
  p.flows = {{1, gpu(0), numa(0), MemKind::device, MemKind::pageable, 1_MiB}};
  const auto wrong_bytes = [&] {
    const auto sim = make_sim(toy(), 1);
    const auto session = sim->prepare(p, "ring#0");
    return sim->run(*session, {1, {{1, 1}}, true}).verdict->wrong_bytes;
  };
  CHECK(wrong_bytes() == 0);
  std::get<Wait>(p.actors[1].loop[0]).value = 0;  // has come from the start
  CHECK(wrong_bytes() > 0);
}
