// Mistakes in the use of work queues (core/putget/verbs.hpp): errors come as completions, and the card finds what no
// caller may write.
#include <cstring>

#include "error_of.hpp"
#include "verbs_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

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
