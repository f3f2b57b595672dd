// Elements of work queues (core/putget/verbs.hpp), read by a card that checks every bit.
#include <cstring>
#include <random>

#include "base/actor_ops.hpp"
#include "doctest.h"
#include "error_of.hpp"
#include "kernel_testing.hpp"
#include "mock_card.hpp"
#include "putget/verbs_host.hpp"

namespace emulated {

#include "instructions.inc"

}  // namespace emulated

using namespace linkscope;
using verbs::CardFromCpu;
using verbs::Completion;
using verbs::LongWord;
using verbs::Opcode;
using verbs::Posted;
using verbs::Request;
using verbs::Segment;
using verbs::Status;

namespace {

LongWord address(const void* at) { return reinterpret_cast<LongWord>(at); }

/// Memory at a multiple of 64 bytes.
struct Aligned {
  explicit Aligned(u64 bytes) : kept(bytes + 64), start{kept.data() + (64 - address(kept.data()) % 64)}, size{bytes} {}
  [[nodiscard]] std::span<std::byte> all() const { return {start, size}; }
  std::vector<std::byte> kept;
  std::byte* start;
  u64 size;
};

/// A CPU that makes mistakes.
struct Planted : CardFromCpu {
  std::function<void(LongWord, Segment&)> on_segment = [](LongWord, Segment&) {};
  std::function<void(verbs::Word&)> on_record = [](verbs::Word&) {};
  std::function<void(LongWord&)> on_ring = [](LongWord&) {};
  bool stamps = true;
  void store(LongWord at, Segment segment) {
    on_segment(at, segment);
    CardFromCpu::store(at, segment);
  }
  void store(LongWord at, verbs::Word value) {
    if (stamps) CardFromCpu::store(at, value);
  }
  void record(LongWord at, verbs::Word value) {
    on_record(value);
    CardFromCpu::record(at, value);
  }
  void ring(LongWord at, LongWord value) {
    on_ring(value);
    CardFromCpu::ring(at, value);
  }
};

constexpr u64 region_bytes = 4096;

/// One end of a connection: queues, and a registered region.
struct End {
  End(MockCard& card, u32 number, u32 blocks, u32 entries)
      : send_memory{u64{blocks} * 64},
        receive_memory{8 * 16},
        completion_memory{u64{entries} * 64},
        region{region_bytes} {
    send = verbs::make_send_queue(send_memory.all(), number, send_record, doorbell);
    receive = verbs::make_receive_queue(receive_memory.all(), receive_record);
    completions = verbs::make_completion_queue(completion_memory.all(), completion_record);
    key = card.add_region(region.all());
    MockCard::Pair made;
    made.number = number;
    made.send = send_memory.all();
    made.receive = receive_memory.all();
    made.send_record = &send_record;
    made.receive_record = &receive_record;
    made.doorbell = reinterpret_cast<u64*>(&doorbell);
    made.completions = card.add_completions(completion_memory.all(), completion_record);
    made.peer = 1 - card.add_pair(made);
    card.connect(1 - made.peer, made.peer);
  }
  [[nodiscard]] LongWord at(u64 offset) const { return address(region.start + offset); }
  [[nodiscard]] u64& word(u64 offset) const { return *reinterpret_cast<u64*>(region.start + offset); }

  Aligned send_memory, receive_memory, completion_memory, region;
  alignas(8) verbs::Word receive_record = 0, send_record = 0, completion_record = 0;
  LongWord doorbell = 0;
  verbs::SendQueue send;
  verbs::ReceiveQueue receive;
  verbs::CompletionQueue completions;
  u32 key = 0;
};

/// Two ends of one card.
struct Connection {
  explicit Connection(u32 blocks = 16, u32 entries = 16)
      : first{card, 0x51, blocks, entries}, second{card, 0xabcdef, blocks, entries} {}

  /// A request of the first end on the second's region, `offset` bytes behind the start of each.
  [[nodiscard]] Request request(Opcode opcode, u32 bytes, u64 offset = 0) const {
    Request made;
    made.opcode = opcode;
    made.remote = second.at(offset);
    made.remote_key = second.key;
    made.local = first.at(offset);
    made.local_key = first.key;
    made.bytes = bytes;
    return made;
  }
  /// Posts, lets the card work, and takes the completion.
  Completion done(const Request& request) {
    REQUIRE(verbs::post(first.send, request, cpu) == Posted::yes);
    verbs::submit(first.send, cpu);
    card.work();
    return completion_of(first);
  }
  Completion completion_of(End& end) {
    Completion completion;
    REQUIRE(verbs::complete(end.send, end.completions, completion, cpu));
    return completion;
  }
  [[nodiscard]] std::string faults() const {
    std::string all;
    for (const auto& fault : card.faults) all += fault + "\n";
    return all;
  }

  MockCard card;
  Planted cpu;
  End first, second;
};

void fill(const End& end, u64 seed) {
  std::mt19937_64 random{seed};
  for (auto& byte : end.region.all()) byte = static_cast<std::byte>(random());
}

}  // namespace

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

TEST_CASE("errors come as completions, and what is posted behind them is flushed") {
  const auto status_of = [](const std::function<void(Connection&, Request&)>& spoil, Opcode opcode = Opcode::write) {
    Connection made;
    auto request = made.request(opcode, 8);
    spoil(made, request);
    request.completes = false;  // an error completes in any case
    const auto failed = made.done(request);
    CHECK(made.done(made.request(Opcode::write, 8)).status == Status::flushed);
    CHECK(made.faults() == "");
    return failed.status;
  };
  CHECK(status_of([](auto&, auto& one) { one.local_key ^= 1; }) == Status::local_protection);
  CHECK(status_of([](auto&, auto& one) { one.bytes = region_bytes + 1; }) == Status::local_protection);
  CHECK(status_of([](auto&, auto& one) { one.remote_key ^= 1; }) == Status::remote_access);
  CHECK(status_of([](auto&, auto& one) { one.remote += region_bytes - 7; }) == Status::remote_access);
  CHECK(status_of([](auto&, auto& one) { one.remote -= 1; }) == Status::remote_access);
  CHECK(status_of([](auto&, auto& one) { one.remote_key ^= 1; }, Opcode::read) == Status::remote_access);
  CHECK(status_of([](auto&, auto&) {}, Opcode::send) == Status::receiver_not_ready);
  Connection made;
  REQUIRE(verbs::post(made.second.receive, made.second.at(0), made.second.key, 4, made.cpu));
  verbs::submit(made.second.receive, made.cpu);
  CHECK(made.done(made.request(Opcode::send, 5)).status == Status::remote_request);
  const auto too_long = made.completion_of(made.second);
  CHECK(too_long.received);
  CHECK(too_long.status == Status::local_length);
}

TEST_CASE("a request that no element can express is refused") {
  Connection made;
  const auto refused = [&](auto change, Opcode opcode = Opcode::write) {
    auto request = made.request(opcode, 8);
    change(request);
    return verbs::post(made.first.send, request, made.cpu) == Posted::invalid && made.first.send.posted == 0;
  };
  CHECK(refused([](Request& one) { one.bytes = 0; }));
  CHECK(refused([](Request& one) { one.bytes = 1u << 31; }));
  CHECK(refused([](Request& one) { one.in_element = true; }, Opcode::read));
  CHECK(refused([](Request& one) { one.in_element = true; }, Opcode::fetch_add));
  CHECK(refused([](Request& one) { one.bytes = 4; }, Opcode::fetch_add));
  CHECK(refused([](Request& one) { one.remote += 4; }, Opcode::fetch_add));
}

TEST_CASE("the card finds each planted mistake") {
  struct Mistake {
    const char* what;
    std::function<void(Planted&)> plant;
    const char* found;
  };
  const auto in_segment = [](u32 segment, u32 word, auto change) {
    return [=](Planted& cpu) {
      cpu.on_segment = [=](LongWord at, Segment& found) {
        if (at % 64 / 16 == segment) found.words[word] = change(found.words[word]);
      };
    };
  };
  const auto swap = [](verbs::Word word) { return verbs::swapped(word); };
  const auto set = [](u32 byte, u32 bits) { return [=](verbs::Word word) { return word | bits << byte * 8; }; };
  const std::vector<Mistake> mistakes{
      {"an opcode and index in the processor's order", in_segment(0, 0, swap), "an opcode modifier is set"},
      {"a queue number in the processor's order", in_segment(0, 1, swap), "does not end within what is posted"},
      {"an index that is off by one", in_segment(0, 0, [](verbs::Word word) { return word + (1u << 16); }),
       "the element's index is 1, and its place 0"},
      {"one segment too many", in_segment(0, 1, [](verbs::Word word) { return word + (1u << 24); }),
       "the element has 4 segments and needs 3"},
      {"one segment too few", in_segment(0, 1, [](verbs::Word word) { return word - (1u << 24); }),
       "the element has no data segment"},
      {"a reserved bit beside the number of segments", in_segment(0, 1, set(3, 0x40)), "reserved bits beside"},
      {"a signature", in_segment(0, 2, set(0, 1)), "a signature or a stream channel is set"},
      {"a stream channel", in_segment(0, 2, set(2, 1)), "a signature or a stream channel is set"},
      {"an unknown flag", in_segment(0, 2, set(3, 0x10)), "unknown flags are set"},
      {"an immediate of a put", in_segment(0, 3, set(0, 1)), "an immediate is set without a send"},
      {"an unknown opcode", in_segment(0, 0, set(3, 0x40)), "opcode 72 is unknown"},
      {"reserved bytes behind the remote key", in_segment(1, 3, set(0, 1)), "reserved bytes behind the remote key"},
      {"another queue's number", in_segment(0, 1, set(2, 0x80)), "the element names queue 209"},
      {"a record in the processor's order",
       [](Planted& cpu) { cpu.on_record = [](verbs::Word& word) { word = verbs::swapped(word); }; },
       "the doorbell record has more than 16 bits"},
      {"a record that announces nothing", [](Planted& cpu) { cpu.on_record = [](verbs::Word& word) { word = 0; }; },
       "the record announces nothing"},
      {"a record that announces a block that is not posted",
       [](Planted& cpu) { cpu.on_record = [](verbs::Word& word) { word = verbs::swapped(2); }; },
       "a stamped block is posted"},
      {"a record that announces more than the queue holds",
       [](Planted& cpu) { cpu.on_record = [](verbs::Word& word) { word = verbs::swapped(17); }; }, "is overrun by 17"},
      {"a doorbell that holds something else", [](Planted& cpu) { cpu.on_ring = [](LongWord& value) { value ^= 1; }; },
       "the doorbell is not the start of the last element"},
  };
  for (const auto& mistake : mistakes) {
    CAPTURE(mistake.what);
    Connection made;
    mistake.plant(made.cpu);
    REQUIRE(verbs::post(made.first.send, made.request(Opcode::write, 8), made.cpu) == Posted::yes);
    verbs::submit(made.first.send, made.cpu);
    made.card.work();
    CAPTURE(made.faults());
    CHECK(made.faults().find(mistake.found) != std::string::npos);
  }
}

TEST_CASE("each bit of a put but the fence matters to the card") {
  constexpr u32 bytes = 40, offset = 2048, fence_bit = 11 * 8 + 7;
  for (u32 bit = 0; bit < 48 * 8; ++bit) {
    CAPTURE(bit);
    Connection made;
    fill(made.first, 1);
    fill(made.second, 2);
    std::vector<std::byte> expected{made.second.region.start, made.second.region.start + region_bytes};
    std::copy_n(made.first.region.start + offset, bytes, expected.begin() + offset);
    REQUIRE(verbs::post(made.first.send, made.request(Opcode::write, bytes, offset), made.cpu) == Posted::yes);
    made.first.send_memory.start[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    if (bit < 64) std::memcpy(&made.first.send.last, made.first.send_memory.start, sizeof(LongWord));
    verbs::submit(made.first.send, made.cpu);
    made.card.work();
    Completion completion;
    const bool completed = verbs::poll(made.first.completions, completion, made.cpu);
    const bool as_asked = made.card.faults.empty() && completed && completion.status == Status::success &&
                          std::equal(expected.begin(), expected.end(), made.second.region.start);
    CHECK(as_asked == (bit == fence_bit));
  }
}

TEST_CASE("addresses and keys in the processor's byte order are outside of every region") {
  for (const auto& [segment, words, status] : {std::tuple{1u, std::pair{0u, 1u}, Status::remote_access},
                                               {1u, std::pair{2u, 2u}, Status::remote_access},
                                               {2u, std::pair{1u, 1u}, Status::local_protection},
                                               {2u, std::pair{2u, 3u}, Status::local_protection}}) {
    Connection made;
    made.cpu.on_segment = [segment = segment, words = words](LongWord at, Segment& found) {
      if (at % 64 / 16 != segment) return;
      for (u32 word = words.first; word <= words.second; ++word) found.words[word] = verbs::swapped(found.words[word]);
    };
    CHECK(made.done(made.request(Opcode::write, 8)).status == status);
  }
}

TEST_CASE(
    "the card finds a free block without a stamp, a block posted too early and completions that nobody confirmed") {
  const auto faults_after = [](auto change, u32 puts) {
    Connection made{4, 4};
    change(made);
    for (u32 i = 0; i < puts; ++i) made.done(made.request(Opcode::write, 8));
    return made.faults();
  };
  CHECK(faults_after([](Connection& made) { made.cpu.stamps = false; }, 2) == "block 4 is free and has no stamp\n");
  // The queue believes that the card has executed what it has not yet.
  Connection early{4, 4};
  const auto put = early.request(Opcode::write, 8);
  for (int i = 0; i < 4; ++i) REQUIRE(verbs::post(early.first.send, put, early.cpu) == Posted::yes);
  verbs::submit(early.first.send, early.cpu);
  early.card.work();
  early.first.send.retired = 1;
  REQUIRE(verbs::post(early.first.send, put, early.cpu) == Posted::yes);
  verbs::submit(early.first.send, early.cpu);
  early.card.work();
  CHECK(early.faults().starts_with("a block is posted again before its completion was read\n"));
  Connection unread{16, 4};
  for (int i = 0; i < 5; ++i)
    REQUIRE(verbs::post(unread.first.send, unread.request(Opcode::write, 8), unread.cpu) == Posted::yes);
  verbs::submit(unread.first.send, unread.cpu);
  unread.card.work();
  CHECK(unread.faults() == "the completion queue of 4 entries is overrun\n");
}

TEST_CASE("queues of wrong sizes and places are refused, with what is wrong") {
  Aligned memory{1024};
  verbs::Word record = 0;
  LongWord doorbell = 0;
  const auto send = [&](u64 from, u64 bytes, u32 number = 1) {
    return error_of([&] { (void)verbs::make_send_queue(memory.all().subspan(from, bytes), number, record, doorbell); });
  };
  CHECK(send(0, 256) == "");
  CHECK(send(16, 256) == "a send queue must begin at a multiple of 64 bytes");
  CHECK(send(0, 192) ==
        "a send queue must have a power of two of pieces of 64 bytes, from 4 to 32768; it has 192 bytes");
  CHECK(send(0, 128).find("from 4 to 32768; it has 128 bytes") != std::string::npos);
  CHECK(send(0, 256, 1 << 24) == "the number of a queue pair has 24 bits");
  CHECK(error_of([&] { (void)verbs::make_receive_queue(memory.all().subspan(0, 40), record); }) != "");
  CHECK(error_of([&] { (void)verbs::make_completion_queue(memory.all().subspan(0, 100), record); }) != "");
}

TEST_CASE("a wait for a completion that never comes ends, and names the completion") {
  Connection made;
  made.done(made.request(Opcode::write, 8));
  CHECK(error_of([&] {
          (void)verbs::await_completion(made.first.completions, Seconds{0.001});
        }).starts_with("completion 1 of a queue of 16 entries did not come within 0.001"));
  REQUIRE(verbs::post(made.first.send, made.request(Opcode::write, 8), made.cpu) == Posted::yes);
  verbs::submit(made.first.send, made.cpu);
  made.card.work();
  CHECK(verbs::await_completion(made.first.completions, Seconds{1}).index == 1);
}

TEST_CASE("the text of a completion says what the card found, and gives the number of an unknown error") {
  Completion completion;
  completion.index = 12;
  completion.queue = 81;
  completion.status = Status::remote_access;
  CHECK(verbs::text_of(completion) ==
        "element 12 of queue 81: remote access error: the remote key, or the range, is not registered");
  completion.received = true;
  completion.status = static_cast<Status>(0x22);
  CHECK(verbs::text_of(completion) == "receive 12 of queue 81: error 34 of the card");
  for (const unsigned known : {0u, 0x01u, 0x02u, 0x04u, 0x05u, 0x12u, 0x13u, 0x16u}) {
    completion.status = static_cast<Status>(known);
    CHECK(verbs::text_of(completion).find("error " + std::to_string(known) + " of the card") == std::string::npos);
  }
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
