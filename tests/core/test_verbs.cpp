// Elements of work queues (core/putget/verbs.hpp), read by a card that checks every bit.
#include <cstring>
#include <random>

#include "base/actor_ops.hpp"
#include "kernel_testing.hpp"
#include "verbs_testing.hpp"

namespace emulated {

#include "instructions.inc"

}  // namespace emulated

using namespace linkscope;
using namespace linkscope::testing;

TEST_CASE("an element of a put has the bytes that mlx5 cards define") {
  Aligned ring{256};
  verbs::Word record = 0;
  LongWord doorbell = 0;
  CardFromCpu cpu;
  auto queue = verbs::make_send_queue(ring.all(), 0x123456, record, doorbell);
  queue.posted = queue.retired = 0x30201;
  Request request;
  request.after_reads = true;
  request.remote = 0x0102030405060708;
  request.remote_key = 0x11121314;
  request.local = 0x2122232425262728;
  request.local_key = 0x31323334;
  request.bytes = 0x41424344;
  REQUIRE(verbs::post(queue, request, cpu) == Posted::yes);
  const unsigned char expected[48] = {0,    0x02, 0x01, 0x08, 0x12, 0x34, 0x56, 3,    0,    0,    0,    0x88,
                                      0,    0,    0,    0,    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
                                      0x11, 0x12, 0x13, 0x14, 0,    0,    0,    0,    0x41, 0x42, 0x43, 0x44,
                                      0x31, 0x32, 0x33, 0x34, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28};
  CHECK(std::memcmp(ring.start + 64, expected, sizeof expected) == 0);
  verbs::submit(queue, cpu);
  const unsigned char announced[4] = {0, 0, 0x02, 0x02};
  CHECK(std::memcmp(&record, announced, sizeof announced) == 0);
  CHECK(std::memcmp(&doorbell, expected, sizeof doorbell) == 0);
}

TEST_CASE("a card executes puts, gets, additions and messages, and says so") {
  Connection made;
  fill(made.first, 1);
  fill(made.second, 2);
  CHECK(made.done(made.request(Opcode::write, 100, 8)).status == Status::success);
  CHECK(std::memcmp(made.first.region.start + 8, made.second.region.start + 8, 100) == 0);
  CHECK(made.done(made.request(Opcode::read, 300, 512)).status == Status::success);
  CHECK(std::memcmp(made.first.region.start + 512, made.second.region.start + 512, 300) == 0);

  made.second.word(1024) = 40;
  auto add = made.request(Opcode::fetch_add, 8, 1024);
  add.add = 0x1'0000'0002;
  CHECK(made.done(add).status == Status::success);
  CHECK(made.second.word(1024) == 0x1'0000'002a);
  CHECK(made.first.word(1024) == 40);

  REQUIRE(verbs::post(made.second.receive, made.second.at(2048), made.second.key, 64, made.cpu));
  verbs::submit(made.second.receive, made.cpu);
  auto send = made.request(Opcode::send, 33, 0);
  send.immediate = 0xfeedbeef;
  const auto sent = made.done(send);
  CHECK(sent.status == Status::success);
  CHECK(!sent.received);
  CHECK(sent.queue == 0x51);
  const auto came = made.completion_of(made.second);
  CHECK(came.received);
  CHECK(came.queue == 0xabcdef);
  CHECK(came.bytes == 33);
  CHECK(came.immediate == 0xfeedbeef);
  CHECK(std::memcmp(made.first.region.start, made.second.region.start + 2048, 33) == 0);
  CHECK(made.faults() == "");
}

TEST_CASE("an element carries payloads of any length up to four blocks, also across the end of its queue") {
  Connection made{8};
  for (u32 bytes = 1; bytes <= 220; ++bytes) {
    fill(made.first, bytes);
    fill(made.second, bytes + 1000);
    auto put = made.request(Opcode::write, bytes, bytes % 7);
    put.in_element = true;
    put.local_key = 0;  // nobody looks at it
    CHECK(made.done(put).status == Status::success);
    CHECK(std::memcmp(made.first.region.start + bytes % 7, made.second.region.start + bytes % 7, bytes) == 0);
  }
  auto put = made.request(Opcode::write, 221);
  put.in_element = true;
  CHECK(verbs::post(made.first.send, put, made.cpu) == Posted::invalid);
  CHECK(made.faults() == "");
}

TEST_CASE("requests of random kinds keep their order and their bytes while the queue wraps, and its indices do") {
  Connection made{32, 8};
  std::mt19937_64 random{7};
  u64 expected = 0;
  u32 blocks = 0;
  made.second.word(0) = 0;
  while (made.first.send.posted < (1u << 16) + 1000) {
    const u32 batch = 1 + random() % 6;
    u32 posted = 0;
    for (; posted < batch; ++posted) {
      auto add = made.request(Opcode::fetch_add, 8);
      add.add = random();
      auto put = made.request(Opcode::write, 1 + random() % 200, 64);
      put.in_element = random() % 2 != 0;
      const bool adds = random() % 2 != 0;
      auto& chosen = adds ? add : put;
      chosen.completes = posted + 1 == batch;
      const Posted answer = verbs::post(made.first.send, chosen, made.cpu);
      if (answer != Posted::yes) break;
      if (adds) expected += add.add;
    }
    REQUIRE(posted == batch);  // six elements of at most four blocks fit
    blocks = made.first.send.posted;
    verbs::submit(made.first.send, made.cpu);
    made.card.work();
    CHECK(made.completion_of(made.first).status == Status::success);
    CHECK(made.first.send.retired == blocks);
  }
  CHECK(made.second.word(0) == expected);
  CHECK(made.faults() == "");
}

TEST_CASE("a full queue refuses a request and takes it when completions are polled") {
  Connection made{4};
  const auto put = made.request(Opcode::write, 8);
  for (int i = 0; i < 4; ++i) CHECK(verbs::post(made.first.send, put, made.cpu) == Posted::yes);
  CHECK(verbs::post(made.first.send, put, made.cpu) == Posted::full);
  verbs::submit(made.first.send, made.cpu);
  made.card.work();
  CHECK(verbs::post(made.first.send, put, made.cpu) == Posted::full);
  CHECK(made.completion_of(made.first).index == 0);
  CHECK(verbs::post(made.first.send, put, made.cpu) == Posted::yes);
  CHECK(verbs::post(made.first.send, put, made.cpu) == Posted::full);
  for (u32 i = 0; i < 8; ++i) CHECK(verbs::post(made.first.receive, made.first.at(0), made.first.key, 8, made.cpu));
  CHECK(!verbs::post(made.first.receive, made.first.at(0), made.first.key, 8, made.cpu));
  CHECK(made.faults() == "");
}

TEST_CASE("an entry of an earlier lap is not taken for a new completion") {
  Connection made{16, 4};
  Completion completion;
  for (int i = 0; i < 11; ++i) {
    CHECK(!verbs::poll(made.first.completions, completion, made.cpu));
    CHECK(made.done(made.request(Opcode::write, 8)).index == static_cast<u32>(i));
  }
  CHECK(made.faults() == "");
}

TEST_CASE("a put with its completion reads its queues twice and writes them seven times, the doorbell among them") {
  struct Counting : CardFromCpu {
    u32 reads = 0, writes = 0, rings = 0;
    void store(LongWord at, const Segment& segment) { ++writes, CardFromCpu::store(at, segment); }
    void store(LongWord at, verbs::Word value) { ++writes, CardFromCpu::store(at, value); }
    [[nodiscard]] Segment load(LongWord at) { return ++reads, CardFromCpu::load(at); }
    [[nodiscard]] LongWord acquire(LongWord at) { return ++reads, CardFromCpu::acquire(at); }
    void record(LongWord at, verbs::Word value) { ++writes, CardFromCpu::record(at, value); }
    void ring(LongWord at, LongWord value) { ++writes, ++rings, CardFromCpu::ring(at, value); }
  };
  Connection made;
  Counting counting;
  Completion completion;
  REQUIRE(verbs::post(made.first.send, made.request(Opcode::write, 1024), counting) == Posted::yes);
  verbs::submit(made.first.send, counting);
  made.card.work();
  REQUIRE(verbs::complete(made.first.send, made.first.completions, completion, counting));
  CHECK(counting.reads == 2);
  CHECK(counting.writes == 7);
  CHECK(counting.rings == 1);
  CHECK(made.faults() == "");
}

TEST_CASE("a GPU's thread posts elements that the card executes, and polls their completions") {
  using emulated::Memory;
  constexpr u64 blocks = 8;
  const Memory send{blocks * 64 + 64}, completions{blocks * 64 + 64}, words{64}, region{256};
  const auto aligned = [](const Memory& memory) { return memory.data() + (64 - address(memory.data()) % 64) % 64; };
  auto* record = reinterpret_cast<verbs::Word*>(words.data());
  std::memset(words.data(), 0, 64);
  auto* doorbell = reinterpret_cast<LongWord*>(words.data() + 16);
  const auto ring = std::as_writable_bytes(std::span{aligned(send), blocks * 64});
  const auto entries = std::as_writable_bytes(std::span{aligned(completions), blocks * 64});
  auto queue = verbs::make_send_queue(ring, 7, record[0], *doorbell);
  auto polled = verbs::make_completion_queue(entries, record[1]);
  MockCard card;
  const u32 key = card.add_region(std::as_writable_bytes(std::span{region.data(), region.bytes()}));
  MockCard::Pair pair;
  pair.number = 7;
  pair.send = ring;
  pair.send_record = &record[0];
  pair.doorbell = reinterpret_cast<u64*>(doorbell);
  pair.completions = card.add_completions(entries, record[1]);
  card.add_pair(pair);
  Request request;
  request.remote = address(region.data() + 128);
  request.local = address(region.data());
  request.remote_key = request.local_key = key;
  request.bytes = 8;
  CardFromCpu cpu;
  for (u64 i = 0; i < 30; ++i) {
    *reinterpret_cast<u64*>(region.data()) = 1000 + i;
    unsigned posted = 9, came = 9;
    Completion completion;
    emulated::run({1, 1}, [&] { emulated::post_put(&queue, request, &posted); });
    CHECK(posted == 0);
    emulated::run({1, 1}, [&] { emulated::poll_completion(&polled, &completion, &came); });
    CHECK(came == 0);
    card.work();
    emulated::run({1, 1}, [&] { emulated::poll_completion(&polled, &completion, &came); });
    CHECK(came == 1);
    CHECK(completion.status == Status::success);
    CHECK(completion.index == i);
    CHECK(*reinterpret_cast<u64*>(region.data() + 128) == 1000 + i);
    verbs::retire(queue, completion, cpu);
  }
  for (const auto& fault : card.faults) FAIL_CHECK(fault);
}
