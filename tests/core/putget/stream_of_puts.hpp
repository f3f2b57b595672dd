// A stream of puts between two regions, each with a signal, that its receiver checks and answers.
#pragma once
#include <string>

#include "putget/channel.hpp"
#include "traffic.hpp"

namespace linkscope {

inline constexpr Seconds patience{300.0};

// Puts of random sizes to random places of 16 slots, each with a signal; the receiver gives slots back by signals.
inline constexpr u64 slots = 16, slot_bytes = 2048, region_bytes = slots * (slot_bytes + 128);

inline u64 word_of(u64 number) { return slots * slot_bytes + number % slots * 128; }
struct Shape {
  u64 bytes, skew;
};
inline Shape shape_of(u64 number) {
  const u64 key = Traffic::mixed(number);
  return {key % (slot_bytes - 15), key / slot_bytes % 16};
}
inline std::byte byte_of(u64 number, u64 i) { return static_cast<std::byte>(Traffic::mixed(number) >> i % 8 * 8 ^ i); }

inline void send_all(OpenChannel& channel, std::byte* local, u64 count) {
  for (u64 n = 0; n < count; ++n) {
    channel.await(word_of(n), n / slots);
    // The sources are written again. The signal of another process tells a thread sanitizer nothing about that.
    if (n % slots == 0) channel.flush();
    const auto [bytes, skew] = shape_of(n);
    std::byte* data = local + n % slots * slot_bytes;
    for (u64 i = 0; i < bytes; ++i) data[i] = byte_of(n, i);
    channel.put_signal(n % slots * slot_bytes + skew, n % slots * slot_bytes, bytes, word_of(n), n / slots + 1);
  }
  channel.quiet();
}

/// `channel` leads back to the sender.
inline std::string receive_all(OpenChannel& channel, const std::byte* local, u64 count) {
  for (u64 n = 0; n < count; ++n) {
    channel.await(word_of(n), n / slots + 1);
    const auto [bytes, skew] = shape_of(n);
    const std::byte* data = local + n % slots * slot_bytes + skew;
    for (u64 i = 0; i < bytes; ++i)
      if (data[i] != byte_of(n, i)) return "put " + std::to_string(n) + " has a wrong byte";
    if (CpuWords::acquire(reinterpret_cast<u64>(local) + word_of(n)) != n / slots + 1)
      return "put " + std::to_string(n) + " was overtaken";
    channel.signal(word_of(n), n / slots + 1);
  }
  channel.quiet();
  return "";
}

inline const std::byte* bytes_at(const PutRegion& region) { return reinterpret_cast<const std::byte*>(region.start()); }

}  // namespace linkscope
