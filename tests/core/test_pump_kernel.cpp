// The kernel that moves chunks through a ring (core/transfer/kernels), as C++ on the emulated GPU.
#include <cstring>
#include <random>
#include <vector>

#include "base/actor_ops.hpp"
#include "kernel_testing.hpp"

namespace emulated {

#include "pump.inc"

}  // namespace emulated

using namespace emulated;

namespace {

constexpr u64 chunk = 4096, word_gap = 128, stride = chunk + 64;

/// A ring whose slots hold all chunks at once, since no CPU thread works beside the emulated GPU.
struct Ring {
  explicit Ring(u64 bytes, u64 offset)
      : chunks{(bytes + chunk - 1) / chunk},
        words((1 + chunks) * word_gap / sizeof(u64) + 8),
        slots(chunks * stride + 48),
        device(bytes + offset + 64, 'x'),
        start{reinterpret_cast<u64>(device.data()) / 16 * 16 + 16 + offset} {
    const u64 word = reinterpret_cast<u64>(words.data());
    const u64 first = (reinterpret_cast<u64>(slots.data()) + 15) / 16 * 16 + offset % 16;
    task = {start,    bytes, chunk, chunks, first, stride, chunks, word + word_gap, word + word_gap + 64,
            word_gap, word,  200000};
  }
  char* slot(u64 i) { return reinterpret_cast<char*>(task.ring + i * stride); }
  u64& filled(u64 i) { return *reinterpret_cast<u64*>(task.filled + i * word_gap); }
  u64& emptied(u64 i) { return *reinterpret_cast<u64*>(task.emptied + i * word_gap); }
  u64& given_up() { return words.front(); }
  u64 bytes_of(u64 i) const { return std::min(chunk, task.bytes - i * chunk); }

  u64 chunks;
  std::vector<u64> words;
  std::vector<char> slots, device;
  u64 start;
  linkscope_pump_task task{};
};

std::vector<char> random_chars(u64 bytes) {
  std::mt19937_64 random{bytes};
  std::vector<char> made(bytes);
  for (auto& one : made) one = static_cast<char>(random());
  return made;
}

}  // namespace

TEST_CASE("the pump kernel takes every byte from the ring, says so for each chunk, and touches nothing else") {
  for (const auto& shape : {Launch{1, 64}, Launch{3, 96}})
    for (const u64 bytes : {1, 15, 4096, 4097, 20'000})
      for (const u64 offset : {0, 7}) {
        CAPTURE(bytes);
        CAPTURE(offset);
        Ring ring{bytes, offset};
        const auto sent = random_chars(bytes);
        for (u64 i = 0; i < ring.chunks; ++i) {
          std::memcpy(ring.slot(i), sent.data() + i * chunk, ring.bytes_of(i));
          ring.filled(i) = i + 1;
        }
        auto expected = ring.device;
        std::memcpy(expected.data() + (ring.start - reinterpret_cast<u64>(ring.device.data())), sent.data(), bytes);
        run(shape, [&] { linkscope_pump(ring.task, 1); });
        CHECK(ring.device == expected);
        for (u64 i = 0; i < ring.chunks; ++i) CHECK(ring.emptied(i) == i + 1);
        CHECK(ring.given_up() == 0);
      }
}

TEST_CASE("the pump kernel brings every byte to the ring, chunk by chunk") {
  const u64 bytes = 20'001;
  Ring ring{bytes, 3};
  const auto sent = random_chars(bytes);
  std::memcpy(reinterpret_cast<char*>(ring.start), sent.data(), bytes);
  run({2, 64}, [&] { linkscope_pump(ring.task, 0); });
  for (u64 i = 0; i < ring.chunks; ++i) {
    CHECK(std::memcmp(ring.slot(i), sent.data() + i * chunk, ring.bytes_of(i)) == 0);
    CHECK(ring.filled(i) == i + 1);
  }
}

TEST_CASE("the pump kernel gives up when a chunk never comes, and does not take what comes behind it") {
  Ring ring{20'000, 0};
  ring.filled(0) = 1;
  ring.filled(2) = 3;
  run({1, 64}, [&] { linkscope_pump(ring.task, 1); });
  CHECK(ring.given_up() == 1);
  CHECK(ring.emptied(0) == 1);
  CHECK(ring.emptied(2) == 0);
}
