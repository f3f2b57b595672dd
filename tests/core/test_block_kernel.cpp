// Device code as in test_kernels.cpp: the block that performs a table of ops.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/actor_ops.hpp"
#include "base/descriptor_ops.hpp"
#include "base/pattern.hpp"
#include "kernel_testing.hpp"

namespace emulated {

#include "block.inc"

}  // namespace emulated

using namespace emulated;
using linkscope::ActorOp;
using linkscope::ActorOps;
using linkscope::OpKind;
using linkscope::OpSpan;

namespace {

OpSpan at(const Memory& memory, u64 stride = 0, u64 slices = 1) {
  return {reinterpret_cast<u64>(memory.data()), stride, slices};
}

ActorOp moves(OpKind kind, const OpSpan& from, const OpSpan& to, u64 bytes) {
  ActorOp op{};
  op.kind = kind;
  op.from = from;
  op.to = to;
  op.bytes = bytes;
  return op;
}

ActorOp sets(const Memory& word, u64 value, u64 step) {
  ActorOp op = moves(OpKind::set, {}, at(word), 8);
  op.value = value;
  op.step = step;
  return op;
}

ActorOp waits(const Memory& word, u64 value, u64 step, u64 timeout_ns = ~u64{0}) {
  ActorOp op = moves(OpKind::wait, at(word), {}, 8);
  op.value = value;
  op.step = step;
  op.timeout_ns = timeout_ns;
  return op;
}

ActorOps table_of(const std::vector<ActorOp>& ops) {
  ActorOps table{};
  table.count = static_cast<unsigned>(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) table.ops[i] = ops[i];
  return table;
}

struct Result {
  Memory words{16};
  Result() { words.words()[0] = words.words()[1] = 0; }
  [[nodiscard]] u64 sum() const { return words.words()[0]; }
  [[nodiscard]] u64 in_vain() const { return words.words()[1]; }
};

void run_block(unsigned threads, const std::vector<ActorOp>& ops, u64 first, u64 count, const Result& result) {
  const auto table = table_of(ops);
  run(
      {1, threads}, [&] { linkscope_block(table, first, count, result.words.words(), nullptr); },
      threads > 1 ? Lanes::lockstep : Lanes::one_by_one);
}

/// The other side of a ping-pong: answers a value with the same value after `polls` polls of the kernel.
struct Other {
  const Memory& ping;
  const Memory& pong;
  unsigned polls;
  std::vector<u64> seen{};
  unsigned waited = 0;

  void poll() {
    const u64 value = ping.words()[0];
    if (seen.empty() ? value == 0 : value == seen.back()) return;
    if (++waited < polls) return;
    waited = 0;
    seen.push_back(value);
    pong.words()[0] = value;
  }
};

}  // namespace

TEST_CASE("a block sets its word, waits for the other word, and continues with the next values") {
  for (const unsigned threads : {1u, 32u})
    for (const unsigned polls : {1u, 3u, 1000u}) {
      const Memory ping{8}, pong{8};
      const Result result;
      ping.words()[0] = pong.words()[0] = 0;
      Other other{ping, pong, polls};
      between_polls = [&] { other.poll(); };
      run_block(threads, {sets(ping, 5, 2), waits(pong, 5, 2)}, 0, 4, result);
      between_polls = nullptr;
      CHECK(other.seen == std::vector<u64>{5, 7, 9, 11});
      CHECK(result.in_vain() == 0);
      CHECK((ping.guards_intact() && pong.guards_intact()));
    }
}

TEST_CASE("a block that waits first answers each value once, after the value has arrived") {
  const Memory ping{8}, pong{8};
  const Result result;
  ping.words()[0] = pong.words()[0] = 0;
  u64 sent = 0;
  bool early = false;
  between_polls = [&] {
    early = early || pong.words()[0] > sent;
    if (pong.words()[0] == sent && sent < 3) ping.words()[0] = ++sent;
  };
  run_block(1, {waits(ping, 1, 1), sets(pong, 1, 1)}, 0, 3, result);
  between_polls = nullptr;
  CHECK_FALSE(early);
  CHECK(pong.words()[0] == 3);
  CHECK(result.in_vain() == 0);
}

TEST_CASE("a block waits until the last of several words has come, whichever it is and however many threads poll") {
  constexpr u64 count = 5;
  for (const unsigned threads : {1u, 3u, 32u})
    for (u64 last = 0; last < count; ++last) {
      const Memory words{count * 8}, done{8};
      const Result result;
      done.words()[0] = 0;
      for (u64 i = 0; i < count; ++i) words.words()[i] = i == last ? 0 : 1;
      unsigned polls = 0;
      between_polls = [&] {
        if (++polls == 200) words.words()[last] = 1;
      };
      ActorOp wait = waits(words, 1, 1);
      wait.bytes = count * 8;
      run_block(threads, {wait, sets(done, 1, 1)}, 0, 1, result);
      between_polls = nullptr;
      CHECK(words.words()[last] == 1);  // the block did not end before it had come
      CHECK(done.words()[0] == 1);
      CHECK(result.in_vain() == 0);
    }
}

TEST_CASE("a block does not load a word again that had come farther than it waits for") {
  const Memory room{8}, done{8};
  const Result result;
  room.words()[0] = 4;
  done.words()[0] = 0;
  unsigned looks = 0;
  between_polls = [&] { room.words()[0] = 4 + 2 * looks++; };
  run_block(1, {waits(room, 1, 1), sets(done, 1, 1)}, 0, 6, result);
  between_polls = nullptr;
  CHECK(done.words()[0] == 6);
  CHECK(looks == 2);  // 4 is enough for four iterations, and the value behind it for the others
}

TEST_CASE("a block gives up after its time-out and reports the op that waited in vain") {
  const Memory ping{8}, pong{8};
  for (const unsigned threads : {1u, 32u}) {
    const Result result;
    ping.words()[0] = 0;
    pong.words()[0] = 12;  // enough for two iterations
    unsigned polls = 0;
    between_polls = [&] { ++polls; };
    run_block(threads, {sets(ping, 1, 1), waits(pong, 11, 1, 1000)}, 0, 9, result);
    between_polls = nullptr;
    CHECK(result.in_vain() == 2 * 2 + 1 + 1);  // the second op of the third iteration
    CHECK(ping.words()[0] == 3);
    CHECK(polls > 1000);  // the kernel reads the clock (100 ns per read) only once in many polls
  }
}

TEST_CASE("each block of a launch performs its own table, and its result is its own") {
  for (const unsigned threads : {1u, 32u}) {
    const Memory words[3] = {Memory{8}, Memory{8}, Memory{8}}, never{8};
    const Result results[3];
    for (const auto& word : words) word.words()[0] = 0;
    never.words()[0] = 0;
    const auto table = table_of({sets(words[0], 1, 1)});
    const linkscope::BlockTable further[] = {
        {table_of({sets(words[1], 10, 1), sets(never, 0, 0), waits(never, 1, 0, 1000)}), results[1].words.words()},
        {table_of({sets(words[2], 20, 1)}), results[2].words.words()}};
    run(
        {3, threads}, [&] { linkscope_block(table, 2, 3, results[0].words.words(), further); },
        threads > 1 ? Lanes::lockstep : Lanes::one_by_one);
    CHECK(words[0].words()[0] == 1 + 4);
    CHECK(words[1].words()[0] == 10 + 2);  // until it gave up
    CHECK(words[2].words()[0] == 20 + 4);
    CHECK(results[0].in_vain() == 0);
    CHECK(results[1].in_vain() == 2 * 3 + 2 + 1);
    CHECK(results[2].in_vain() == 0);
  }
}

TEST_CASE("a stamped kernel notes its clocks and the end of each iteration of its first block") {
  for (const unsigned threads : {1u, 32u}) {
    const Memory words[2] = {Memory{8}, Memory{8}};
    const Result results[2];
    for (const auto& word : words) word.words()[0] = 0;
    const auto table = table_of({sets(words[0], 1, 1)});
    const linkscope::BlockTable further[] = {{table_of({sets(words[1], 10, 1)}), results[1].words.words()}};
    linkscope::BlockStamps stamps{};
    run(
        {2, threads}, [&] { linkscope_block_stamped(table, 2, 3, results[0].words.words(), further, &stamps); },
        threads > 1 ? Lanes::lockstep : Lanes::one_by_one);
    CHECK(words[0].words()[0] == 1 + 4);
    CHECK(words[1].words()[0] == 10 + 4);
    CHECK(stamps.begun_ns < stamps.ended_ns);
    CHECK(static_cast<unsigned>(stamps.begun_clock) < stamps.clocks[0]);
    CHECK(stamps.clocks[0] < stamps.clocks[1]);
    CHECK(stamps.clocks[1] < stamps.clocks[2]);
    CHECK(stamps.clocks[2] < static_cast<unsigned>(stamps.ended_clock));
    CHECK(stamps.clocks[3] == 0);
  }
}

TEST_CASE("a stamped kernel notes as many iterations as it has room for, and runs the others") {
  const Memory word{8};
  const Result result;
  word.words()[0] = 0;
  auto stamps = std::make_unique<linkscope::BlockStamps>();
  const u64 count = linkscope::most_stamps + 5;
  const auto table = table_of({sets(word, 1, 1)});
  run({1, 1}, [&] { linkscope_block_stamped(table, 0, count, result.words.words(), nullptr, stamps.get()); });
  CHECK(word.words()[0] == count);
  CHECK(stamps->clocks[linkscope::most_stamps - 1] != 0);
}

TEST_CASE("a block's threads copy every byte once, slice by slice, and touch nothing else") {
  for (const unsigned threads : {1u, 7u, 32u})
    for (const u64 bytes : {u64{8}, u64{16}, u64{520}, u64{4096}, u64{10'008}}) {
      const u64 stride = (bytes + 15) / 16 * 16;
      const Memory from{3 * stride}, to{2 * stride};
      const Result result;
      from.fill_with_pattern(5);
      run_block(threads, {moves(OpKind::copy, at(from, stride, 3), at(to, stride, 2), bytes)}, 1, 2, result);
      bool same = true;  // iteration 1: slice 1 to slice 1; iteration 2: slice 2 to slice 0
      for (u64 i = 0; i < bytes; ++i)
        same = same && to.data()[stride + i] == from.data()[stride + i] && to.data()[i] == from.data()[2 * stride + i];
      CHECK(same);
      CHECK((from.guards_intact() && to.guards_intact()));
    }
}

TEST_CASE("a block's threads store the pattern of a region where it belongs, and load all of it") {
  for (const unsigned threads : {1u, 32u})
    for (const u64 bytes : {u64{8}, u64{24}, u64{4096}, u64{9000}}) {
      const Memory region{64 + bytes};
      const Result result;
      const OpSpan behind{reinterpret_cast<u64>(region.data()) + 64, 0, 1};
      ActorOp store = moves(OpKind::store, {}, behind, bytes);
      store.seed = 9;
      store.origin = at(region).start;
      run_block(threads, {store, moves(OpKind::fence, {}, {}, 0), moves(OpKind::load, behind, {}, bytes)}, 0, 3,
                result);
      u64 expected = 0;
      bool right = true;
      for (u64 i = 8; i < 8 + bytes / 8; ++i) {
        right = right && region.words()[i] == linkscope_pattern_word(9, i);
        expected += 3 * linkscope_pattern_word(9, i);
      }
      CHECK(right);
      CHECK(result.sum() == expected);
      CHECK(region.guards_intact());
    }
}

TEST_CASE("a block's word is set after all of its threads' stores, and its threads load after a wait") {
  const Memory data{512}, copy{512}, ready{8}, done{8};
  const Result result;
  data.fill_with_pattern(1);
  ready.words()[0] = done.words()[0] = 0;
  unsigned polls = 0;
  between_polls = [&] {
    if (++polls < 3) CHECK(copy.untouched());
    else ready.words()[0] = 1;
  };
  run_block(32, {waits(ready, 1, 1), moves(OpKind::copy, at(data), at(copy), 512), sets(done, 1, 1)}, 0, 1, result);
  between_polls = nullptr;
  CHECK(copy.holds_pattern(1));
  const auto word = [&](const Access& one) { return one.writes && one.at == done.data(); };
  const auto data_store = [&](const Access& one) {
    return one.writes && one.at >= copy.data() && one.at < copy.data() + 512;
  };
  std::ptrdiff_t last_store = -1, set_at = -1;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (data_store(accesses[i])) last_store = static_cast<std::ptrdiff_t>(i);
    if (word(accesses[i])) set_at = static_cast<std::ptrdiff_t>(i);
  }
  CHECK((last_store >= 0 && last_store < set_at));
}

TEST_CASE("a block sends each 8 bytes with the value in one store of 16, slice by slice") {
  for (const unsigned threads : {1u, 32u})
    for (const u64 bytes : {u64{8}, u64{512}}) {
      const Memory from{2 * bytes}, to{4 * bytes};
      const Result result;
      from.fill_with_pattern(5);
      ActorOp send = moves(OpKind::send, at(from, bytes, 2), at(to, 2 * bytes, 2), bytes);
      send.value = 7, send.step = 1;
      run_block(threads, {send}, 0, 2, result);
      bool right = true;
      for (u64 i = 0; i < 2 * bytes / 8; ++i)
        right = right && to.words()[2 * i] == from.words()[i] && to.words()[2 * i + 1] == 7 + i / (bytes / 8);
      CHECK(right);
      CHECK(to.vectors_written_once());
      CHECK(to.guards_intact());
    }
}

TEST_CASE("a block adds to a word behind its stores") {
  const Memory from{64}, to{64}, word{8};
  const Result result;
  word.words()[0] = 5;
  from.fill_with_pattern(1);
  ActorOp add = moves(OpKind::add, {}, at(word), 8);
  add.value = 2;
  run_block(32, {moves(OpKind::copy, at(from), at(to), 64), add}, 0, 3, result);
  CHECK(word.words()[0] == 11);
  CHECK(to.holds_pattern(1));
}

TEST_CASE("a block copies by TMA, iteration after iteration, and touches nothing else") {
  for (const unsigned threads : {1u, 32u})
    for (const u64 bytes : {u64{16}, u64{24}, u64{15'360}, u64{50'000}}) {
      const Memory from{bytes}, to{bytes};
      const Result result;
      from.fill_with_pattern(9);
      const auto table = table_of({moves(OpKind::copy_tma, at(from), at(to), bytes)});
      run(
          {1, threads}, [&] { linkscope_block_tma(table, 0, 5, result.words.words(), nullptr); },
          threads > 1 ? Lanes::lockstep : Lanes::one_by_one);
      CHECK(to.holds_pattern(9));
      CHECK((to.guards_intact() && result.in_vain() == 0));
    }
}

TEST_CASE("a block posts descriptors, and another takes them and does what they say") {
  constexpr u64 slots = 3, bytes = 256;
  for (const unsigned threads : {1u, 32u})
    for (const u64 pairs : {u64{1}, u64{2}, u64{8}}) {
      const u64 each = pairs == 1 ? 2 : 1, pitch = each * pairs * 16;
      const Memory from{2 * bytes}, to{2 * bytes}, ring{slots * pitch}, words{64};
      const Result result;
      from.fill_with_pattern(2);
      std::fill_n(ring.words(), slots * pitch / 8, 0);
      words.words()[3] = 0;
      const auto slot = [&](OpKind kind, u64 number) {
        ActorOp op = moves(kind, {0, bytes, 2}, {0, bytes, 2}, kind == OpKind::post ? bytes : 0);
        op.ring = reinterpret_cast<u64>(ring.data());
        op.slots = {op.ring + number * pairs * 16, pitch, slots};
        op.pairs = pairs;
        op.signal = 24;
        op.value = op.step = 1;
        op.timeout_ns = 1000;
        return op;
      };
      std::vector<ActorOp> posts{slot(OpKind::post, 0)}, serves{slot(OpKind::take, 0)};
      serves.push_back(moves(OpKind::copy_taken, at(from), at(to), bytes));
      if (each == 2) {
        posts.front().signal = linkscope::no_signal;
        posts.push_back(slot(OpKind::post, 1));
        posts.back().bytes = 0;
        serves.push_back(slot(OpKind::take, 1));
      }
      serves.push_back(moves(OpKind::set_taken, {}, at(words), 8));
      for (auto& op : serves) op.pairs = pairs;
      for (u64 i = 0; i < 10; ++i) {
        run_block(threads, posts, i, 1, result);
        run_block(threads, serves, i, 1, result);
        REQUIRE(result.in_vain() == 0);
        CHECK(words.words()[3] == i + 1);
        CHECK(std::equal(to.data() + i % 2 * bytes, to.data() + (i % 2 + 1) * bytes, from.data() + i % 2 * bytes));
      }
      run_block(threads, serves, 10, 1, result);
      CHECK(result.in_vain() == 10 * serves.size() + 1);  // nobody has posted the next one
      CHECK((ring.guards_intact() && words.guards_intact() && to.guards_intact()));
    }
}

TEST_CASE("a block receives words when all of them have the value, and stores their payload") {
  for (const unsigned threads : {1u, 32u}) {
    const u64 bytes = 512;
    const Memory from{2 * bytes}, to{bytes};
    const Result result;
    for (u64 i = 0; i < bytes / 8; ++i) from.words()[2 * i] = 100 + i, from.words()[2 * i + 1] = 3;
    from.words()[bytes / 8 + 1] = 2;  // one word is of the message before
    unsigned polls = 0;
    between_polls = [&] {
      if (++polls == 500) from.words()[bytes / 8 + 1] = 3;
    };
    ActorOp receive = moves(OpKind::receive, at(from), at(to), bytes);
    receive.value = 3, receive.timeout_ns = ~u64{0};
    run_block(threads, {receive}, 0, 1, result);
    between_polls = nullptr;
    CHECK(polls > 500);
    bool right = true;
    for (u64 i = 0; i < bytes / 8; ++i) right = right && to.words()[i] == 100 + i;
    CHECK(right);
    CHECK(result.in_vain() == 0);
    receive.value = 4, receive.timeout_ns = 1000;
    run_block(threads, {receive}, 0, 1, result);
    CHECK(result.in_vain() == 1);
  }
}
