// Two ends of a connection whose work queues a mock card executes, for the tests of core/putget/verbs.hpp.
#pragma once
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "doctest.h"
#include "mock_card.hpp"
#include "putget/verbs_host.hpp"

namespace linkscope::testing {

using verbs::CardFromCpu;
using verbs::Completion;
using verbs::LongWord;
using verbs::Opcode;
using verbs::Posted;
using verbs::Request;
using verbs::Segment;
using verbs::Status;

inline LongWord address(const void* at) { return reinterpret_cast<LongWord>(at); }

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

inline void fill(const End& end, u64 seed) {
  std::mt19937_64 random{seed};
  for (auto& byte : end.region.all()) byte = static_cast<std::byte>(random());
}

}  // namespace linkscope::testing
