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

/// A ring whose slots hold all chunks at once, since no CPU thread works beside the emulated GPU. The range on the GPU begins
/// `offset` bytes behind a multiple of 16.
struct Ring {
  Ring(u64 bytes, u64 offset)
      : chunks{(bytes + chunk - 1) / chunk},
        words{(1 + chunks) * word_gap},
        slots{chunks * stride + 16},
        device{bytes + 32} {
    std::memset(words.data(), 0, words.bytes());
    std::memset(device.data(), 'x', device.bytes());
    const u64 word = reinterpret_cast<u64>(words.data()),
              start = (reinterpret_cast<u64>(device.data()) + 15) / 16 * 16 + offset,
              first = (reinterpret_cast<u64>(slots.data()) + 15) / 16 * 16 + offset;
    task = {start,    bytes, chunk, chunks, first, stride, chunks, word + word_gap, word + word_gap + 64,
            word_gap, word,  200000};
  }
  [[nodiscard]] char* slot(u64 i) const { return reinterpret_cast<char*>(task.ring + i * stride); }
  [[nodiscard]] u64& filled(u64 i) const { return *reinterpret_cast<u64*>(task.filled + i * word_gap); }
  [[nodiscard]] u64& emptied(u64 i) const { return *reinterpret_cast<u64*>(task.emptied + i * word_gap); }
  [[nodiscard]] u64 given_up() const { return words.words()[0]; }
  [[nodiscard]] u64 bytes_of(u64 i) const { return std::min(chunk, task.bytes - i * chunk); }
  [[nodiscard]] std::vector<char> all_of_device() const { return {device.data(), device.data() + device.bytes()}; }

  u64 chunks;
  Memory words, slots, device;
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
  for (const auto& shape : {Launch{1, 32}, Launch{3, 32}})
    for (const u64 bytes : {1, 15, 4096, 4097, 20'000})
      for (const u64 offset : {0, 7}) {
        CAPTURE(bytes);
        CAPTURE(offset);
        const Ring ring{bytes, offset};
        const auto sent = random_chars(bytes);
        for (u64 i = 0; i < ring.chunks; ++i) {
          std::memcpy(ring.slot(i), sent.data() + i * chunk, ring.bytes_of(i));
          ring.filled(i) = i + 1;
        }
        auto expected = ring.all_of_device();
        std::memcpy(expected.data() + (ring.task.device - reinterpret_cast<u64>(ring.device.data())), sent.data(),
                    bytes);
        run(shape, [&] { linkscope_pump(ring.task, 1); }, Lanes::lockstep);
        CHECK(ring.all_of_device() == expected);
        CHECK(ring.device.guards_intact());
        for (u64 i = 0; i < ring.chunks; ++i) CHECK(ring.emptied(i) == i + 1);
        CHECK(ring.given_up() == 0);
      }
}

TEST_CASE("the pump kernel brings every byte to the ring, chunk by chunk") {
  const u64 bytes = 20'001;
  const Ring ring{bytes, 3};
  const auto sent = random_chars(bytes);
  std::memcpy(reinterpret_cast<char*>(ring.task.device), sent.data(), bytes);
  run({2, 32}, [&] { linkscope_pump(ring.task, 0); }, Lanes::lockstep);
  for (u64 i = 0; i < ring.chunks; ++i) {
    CHECK(std::memcmp(ring.slot(i), sent.data() + i * chunk, ring.bytes_of(i)) == 0);
    CHECK(ring.filled(i) == i + 1);
  }
}

TEST_CASE("the pump kernel gives up when a chunk never comes, and does not take what comes behind it") {
  const Ring ring{20'000, 0};
  ring.filled(0) = 1;
  ring.filled(2) = 3;
  run({1, 32}, [&] { linkscope_pump(ring.task, 1); }, Lanes::lockstep);
  CHECK(ring.given_up() == 1);
  CHECK(ring.emptied(0) == 1);
  CHECK(ring.emptied(2) == 0);
}
