// Random traffic between actors that have a ring of messages for each ordered pair. Who receives a message knows its size
// and its words from the pair and the number, so a message that is lost, doubled, torn or out of order is found.
#pragma once
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/ring.hpp"
#include "base/units.hpp"
#include "putget/cpu_words.hpp"

namespace linkscope {

/// A small sample, or all of it in `make test-long`.
inline u64 messages_in_all() {
  const char* chosen = std::getenv("LINKSCOPE_TESTS");
  return chosen && std::string{chosen} == "long" ? 1'000'000 : 30'000;
}

struct Traffic {
  u64 start;  // of memory that all actors map, zero at first
  u32 actors;
  u64 messages_each;  // of an ordered pair
  static constexpr u32 slots = 5, words = 9;
  static constexpr u64 ring_bytes = 128 + slots * words * pair_bytes;

  [[nodiscard]] u64 bytes() const { return actors * actors * ring_bytes; }
  [[nodiscard]] Ring ring(u32 from, u32 to) const {
    const u64 at = start + (from * actors + to) * ring_bytes;
    return {at + 128, at, slots, words};
  }
  [[nodiscard]] static u64 mixed(u64 value) {
    value = (value ^ (value >> 31)) * 0x7FB5D329728EA185ull;
    value = (value ^ (value >> 27)) * 0x81DADEF4BC2DD44Dull;
    return value ^ (value >> 33);
  }
  [[nodiscard]] static u64 key(u32 from, u32 to, u64 number) {
    return mixed((u64{from} << 48 | u64{to} << 40) + number);
  }
  [[nodiscard]] static unsigned bytes_of(u64 key) { return static_cast<unsigned>(key % (words * 8 + 1)); }

  /// Sends and receives in random order until all is done. "" or what is wrong.
  [[nodiscard]] std::string run(u32 self, Seconds patience) const;
};

inline std::string Traffic::run(u32 self, Seconds patience) const {
  CpuWords memory;
  std::mt19937_64 random{self};
  std::vector<MessageSender> senders;
  std::vector<MessageReceiver> receivers;
  for (u32 other = 0; other < actors; ++other) {
    senders.push_back({ring(self, other)});
    receivers.push_back({ring(other, self)});
  }
  u64 left = 2 * (actors - 1) * messages_each;
  RingWord latest = CpuWords::now_ns();
  std::vector<u64> found(words);
  while (left > 0) {
    const auto other = static_cast<u32>(random() % actors);
    if (other == self) continue;
    auto& sender = senders[other];
    auto& receiver = receivers[other];
    bool moved = false;
    if (random() % 2 && sender.sent < messages_each) {
      const u64 of = key(self, other, sender.sent);
      moved = sender.try_send(memory, OneThread{}, bytes_of(of), [&](unsigned i) { return mixed(of + i); });
    } else if (receiver.received < messages_each) {
      const u64 number = receiver.received, of = key(other, self, number);
      moved = receiver.try_receive(memory, OneThread{}, [&](unsigned i, u64 word) { found[i] = word; });
      if (moved && receiver.bytes != bytes_of(of)) return "message " + std::to_string(number) + " has a wrong length";
      for (unsigned i = 0; moved && i < message_words(receiver.bytes); ++i)
        if (found[i] != mixed(of + i)) return "message " + std::to_string(number) + " has wrong words";
    }
    left -= moved;
    if (moved) latest = 0;
    if (random() % 1024 != 0) continue;
    const RingWord now = CpuWords::now_ns();
    if (latest == 0) latest = now;
    if (static_cast<double>(now - latest) > patience.count() * 1e9)
      return "actor " + std::to_string(self) + " waits in vain with " + std::to_string(left) + " messages left";
  }
  for (u32 other = 0; other < actors; ++other)
    if (other != self && receivers[other].try_receive(memory, OneThread{}, [](unsigned, u64) {}))
      return "a message came twice";
  return "";
}

}  // namespace linkscope
