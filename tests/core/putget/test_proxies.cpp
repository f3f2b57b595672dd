// Proxy threads that serve several rings in turn.
#include <atomic>
#include <cstring>
#include <vector>

#include "doctest.h"
#include "putget/proxy.hpp"
#include "putget_testing.hpp"

using namespace linkscope;

namespace {

/// A ring that always has work.
struct BusyRing : ServedRing {
  bool serve() override {
    ++turns;
    return true;
  }
  void look_after() override {}
  std::atomic<u64> turns{0};
};

/// Calls a function in each turn.
template <class Function>
struct WatchingRing : ServedRing {
  explicit WatchingRing(Function function) : in_turn{function} {}
  bool serve() override {
    in_turn();
    return true;
  }
  void look_after() override {}
  Function in_turn;
};

void wait_until(const std::atomic<bool>& done) {
  while (!done) std::this_thread::yield();
}

u64 completed(const OpenChannel& channel) { return CpuWords::acquire(channel.view().credits); }

}  // namespace

TEST_CASE("a proxy gives each of its rings a turn, also beside rings that always have work") {
  std::vector<BusyRing> busy(3);
  std::vector<u64> before(busy.size()), unequal;
  std::atomic<u64> looks{0};
  std::atomic<bool> done{false};
  WatchingRing last{[&] {
    for (std::size_t i = 0; i < busy.size() && !done; ++i) {
      if (looks > 0 && busy[i].turns != before[i] + 1) unequal.push_back(busy[i].turns - before[i]);
      before[i] = busy[i].turns;
    }
    if (++looks == 1000) done = true;
  }};
  Proxy proxy;
  for (auto& ring : busy) proxy.add(ring);
  proxy.add(last);
  wait_until(done);
  for (auto& ring : busy) proxy.remove(ring);
  proxy.remove(last);
  CHECK(unequal.empty());
}

TEST_CASE("a full ring keeps the others of its proxy waiting for half of its descriptors at a time") {
  Memory sent{64_KiB}, came{64_KiB};
  PutRegion local{all(), sent.data(), sent.size()}, remote{all(), came.data(), came.size()};
  constexpr u32 number = 7, slots = 8;
  OpenChannel channel{all(), local, remote, {.transport = Transport::proxy, .slots = slots, .proxy = number}};
  std::atomic<bool> held{false}, posted{false}, done{false};
  std::vector<u64> seen;
  WatchingRing other{[&] {
    if (!posted) {
      held = true;
      wait_until(posted);
      return;
    }
    if (seen.size() < 2) seen.push_back(completed(channel));
    done = seen.size() == 2;
  }};
  const auto proxy = all().proxy(number);
  proxy->add(other);
  wait_until(held);
  for (u32 i = 0; i < slots; ++i) channel.put(0, 0, 64);
  posted = true;
  wait_until(done);
  proxy->remove(other);
  CHECK(seen == std::vector<u64>{slots / 2, slots});
}

TEST_CASE("channels of one number share a thread, and each of them delivers its own data") {
  constexpr u32 channels = 12, proxies = 2, each = 4096;
  Memory sent{channels * each}, came{channels * each};
  sent.fill(5);
  PutRegion local{all(), sent.data(), sent.size()}, remote{all(), came.data(), came.size()};
  std::vector<std::unique_ptr<OpenChannel>> open;
  for (u32 i = 0; i < channels; ++i)
    open.push_back(std::make_unique<OpenChannel>(
        all(), local, remote, ChannelOptions{.transport = Transport::proxy, .slots = 4, .proxy = 1 + i % proxies}));
  for (u32 lap = 0; lap < 8; ++lap)
    for (u32 i = 0; i < channels; ++i) open[i]->put(i * each + lap * 512, i * each + lap * 512, 512);
  for (auto& channel : open) channel->quiet();
  CHECK(std::memcmp(sent.data(), came.data(), channels * each) == 0);
  CHECK(all().proxy(1) == all().proxy(1));
  CHECK(all().proxy(1) != all().proxy(2));
}

TEST_CASE("a channel whose descriptors fail leaves the others of its proxy at work") {
  Memory sent{64_KiB}, came{64_KiB};
  PutRegion local{all(), sent.data(), sent.size()}, remote{all(), came.data(), came.size()};
  const ChannelOptions options{.transport = Transport::proxy, .proxy = 3};
  DeviceBytes freed{4096};
  PutRegion gone{all(), freed.pointer(), freed.size()};
  OpenChannel bad{all(), local, gone, options}, good{all(), local, remote, options};
  freed.free();
  bad.put(0, 0, 64);
  CHECK_THROWS(bad.quiet());
  good.put(0, 0, 64);
  CHECK_NOTHROW(good.quiet());
}

namespace {

/// A proxy that copies from pinned memory to a GPU, at work on a large put: what is posted next, it takes at once.
struct ToGpu {
  static constexpr u64 large = 32_MiB, words = 2 * large, size = words + 64_KiB;
  const DeviceBytes on_gpu{size};
  PutRegion local{all(), size}, remote{all(), on_gpu.pointer(), size};
  OpenChannel channel{all(),
                      local,
                      remote,
                      {.transport = Transport::proxy, .slots = 4096, .descriptor_bytes = 16, .timeout = Seconds{30}}};
  ToGpu() {
    std::memset(reinterpret_cast<void*>(local.start()), 1, words);
    channel.put(0, 0, large);
  }
  // The fake's device memory is host memory at the same address.
  [[nodiscard]] u64 word(u64 number) const {
    return std::atomic_ref{*reinterpret_cast<u64*>(remote.start() + words + number * sizeof(u64))};
  }
};

}  // namespace

TEST_CASE("more words than a proxy has slots for keep their values while the GPU is behind") {
  ToGpu to;
  constexpr u64 count = 1500;
  to.channel.put(ToGpu::large, ToGpu::large, ToGpu::large);
  for (u64 i = 0; i < count; ++i) to.channel.signal(ToGpu::words + i * sizeof(u64), i + 1);
  to.channel.quiet();
  for (u64 i = 0; i < count; ++i) CHECK(to.word(i) == i + 1);
}

TEST_CASE("a word of a GPU to which a proxy adds changes after the data before it is there") {
  ToGpu to;
  to.channel.put(ToGpu::large, ToGpu::large, ToGpu::large);
  to.channel.add(ToGpu::words, 5);
  while (to.word(0) == 0) std::this_thread::yield();
  CHECK(*reinterpret_cast<const std::byte*>(to.remote.start() + ToGpu::words - 1) == std::byte{1});
  to.channel.quiet();
  CHECK(to.word(0) == 5);
}
