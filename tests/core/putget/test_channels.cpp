// Channels between memory of this process: CPU threads and kernels of GPUs post, through each transport.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "doctest.h"
#include "error_of.hpp"
#include "gpu/context.hpp"
#include "putget_testing.hpp"

using namespace linkscope;

TEST_CASE("a put with a signal delivers its data before the signal, by every transport between two threads") {
  for (const auto transport : {Transport::memory, Transport::proxy}) {
    Memory sent{1_MiB}, came{1_MiB};
    PutRegion local{all(), sent.data(), sent.size()}, remote{all(), came.data(), came.size()};
    OpenChannel channel{all(), local, remote, {.transport = transport}};
    CAPTURE(channel.transport());
    OpenChannel polled{all(), remote, local, {}};
    std::thread receiver{[&] {
      polled.await(word_at, 7);
      CHECK(std::memcmp(came.data() + 100, sent.data(), 1000) == 0);
    }};
    sent.fill(3);
    channel.put_signal(100, 0, 1000, word_at, 7);
    receiver.join();
    channel.quiet();
  }
}

TEST_CASE("kernels of a GPU post through memory, a serving kernel and a proxy") {
  for (const auto transport : {Transport::memory, Transport::kernel, Transport::proxy})
    for (const u32 bytes : {16u, 32u, 64u, 128u}) {
      DeviceBytes on_gpu{64_KiB};
      PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), 64_KiB};
      OpenChannel channel{all(), local, remote, {.gpu = 0, .transport = transport, .descriptor_bytes = bytes}};
      CAPTURE(channel.transport());
      CAPTURE(bytes);
      const auto sent = on_gpu.fill(bytes);
      const std::vector<PostStep> steps{
          {StepKind::put_signal, {Verb::put, 0, 64, 5000, 9}, word_at},
          {StepKind::operation, {Verb::add, 0, word_at + 8, 0, 5}, 0},
          {StepKind::operation, {Verb::get, 32'000, 64, 5000, 0}, 0},
          {StepKind::quiet, {}, 0},
      };
      channel.run_on_gpu(steps, 256, nullptr);
      OpenChannel polled{all(), remote, local, {.transport = Transport::proxy}};
      polled.await(word_at, 9);
      const auto* came = reinterpret_cast<const std::byte*>(remote.start());
      CHECK(std::memcmp(came + 64, sent.data(), 5000) == 0);
      channel.finish_on_gpu();
      CHECK(*reinterpret_cast<const u64*>(came + word_at + 8) == 5);
      CHECK(std::memcmp(on_gpu.read().data() + 32'000, sent.data(), 5000) == 0);
    }
}

TEST_CASE("the ring lies in host memory or in that of the GPU that posts or of the one that serves") {
  for (const auto ring : {std::optional<u32>{}, std::optional<u32>{0}, std::optional<u32>{1}}) {
    DeviceBytes on_gpu{64_KiB}, on_server{64_KiB, 1};
    PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), on_server.pointer(), on_server.size()};
    OpenChannel channel{all(),
                        local,
                        remote,
                        {.gpu = 0, .transport = Transport::kernel, .server_gpu = 1, .slots = 4, .ring_gpu = ring}};
    CAPTURE(channel.transport());
    CUdevice owner = -1;
    if (ring) owner = locate(all().driver(), reinterpret_cast<void*>(channel.view().slots)).device;
    CHECK(owner == (ring ? all().gpu(*ring).facts().handle : -1));
    const auto sent = on_gpu.fill(3);
    std::vector<PostStep> steps;
    for (u64 i = 0; i < 20; ++i)
      steps.push_back({StepKind::put_signal, {Verb::put, 100 * i, 100 * i, 100, i + 1}, word_at});
    steps.push_back({StepKind::quiet, {}, 0});
    channel.run_on_gpu(steps, 32, nullptr);
    channel.finish_on_gpu();
    const auto came = on_server.read();
    CHECK(std::memcmp(came.data(), sent.data(), 2000) == 0);
    u64 word = 0;
    std::memcpy(&word, came.data() + word_at, sizeof word);
    CHECK(word == 20);
  }
}

TEST_CASE("blocks of a GPU post together, by loads and stores and by TMA, through memory and a serving kernel") {
  for (const bool tma : {false, true})
    for (const auto transport : {Transport::memory, Transport::kernel}) {
      DeviceBytes on_gpu{64_KiB};
      PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), 64_KiB};
      OpenChannel channel{all(), local, remote, {.gpu = 0, .transport = transport, .tma = tma}};
      const auto sent = on_gpu.fill(5);
      const std::vector<PostStep> steps{{StepKind::put_signal, {Verb::put, 1, 17, 9999, 4}, word_at},
                                        {StepKind::quiet, {}, 0}};
      channel.run_on_gpu(steps, 256, nullptr, 2);
      channel.finish_on_gpu();
      const auto* came = reinterpret_cast<const std::byte*>(remote.start());
      CHECK(std::memcmp(came + 17, sent.data() + 1, 9999) == 0);
      CHECK(*reinterpret_cast<const u64*>(came + word_at) == 4);
    }
}

TEST_CASE("pinned memory that a channel had is zero for the next one") {
  auto block = all().take_pinned(4_KiB);
  std::memset(block.memory.data(), 0xFF, block.bytes);
  const auto* start = block.memory.data();
  all().give_back(std::move(block));
  auto again = all().take_pinned(4_KiB);
  while (again.memory.data() != start) again = all().take_pinned(4_KiB);
  CHECK(std::all_of(start, start + again.bytes, [](std::byte one) { return one == std::byte{}; }));
  all().give_back(std::move(again));
}

TEST_CASE("a channel that is closed waits for the steps that a GPU still has to perform") {
  DeviceBytes on_gpu{64_KiB};
  PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), 64_KiB};
  const auto sent = on_gpu.fill(6);
  const auto gate = all().take_pinned(8);
  const CurrentContext current{all().driver(), all().gpu(0).context()};
  for (const auto transport : {Transport::memory, Transport::proxy}) {
    std::memset(reinterpret_cast<void*>(remote.start()), 0, remote.bytes());
    auto& word = *reinterpret_cast<unsigned*>(gate.memory.data());
    std::atomic_ref{word} = 0;
    std::jthread opener;
    {
      OpenChannel channel{all(), local, remote, {.gpu = 0, .transport = transport}};
      LINKSCOPE_CU(all().driver(), cuStreamWaitValue32, nullptr, reinterpret_cast<CUdeviceptr>(&word), 1,
                   CU_STREAM_WAIT_VALUE_EQ);
      channel.run_on_gpu(
          std::vector<PostStep>{{StepKind::put_signal, {Verb::put, 0, 0, 5000, 7}, word_at}, {StepKind::quiet, {}, 0}},
          32, nullptr);
      opener = std::jthread{[&] {
        std::this_thread::sleep_for(std::chrono::milliseconds{30});
        std::atomic_ref{word} = 1;
      }};
    }
    const auto* came = reinterpret_cast<const std::byte*>(remote.start());
    CHECK(*reinterpret_cast<const u64*>(came + word_at) == 7);
    CHECK(std::memcmp(came, sent.data(), 5000) == 0);
  }
}

TEST_CASE("new memory of a GPU is zero, and other GPUs reach it") {
  PutRegion remote{all(), 64_KiB, OnGpu{1}};
  DeviceBytes on_gpu{64_KiB};
  PutRegion local{all(), on_gpu.pointer(), on_gpu.size()};
  const auto sent = on_gpu.fill(1);
  OpenChannel channel{all(), local, remote, {.gpu = 0}};
  CHECK(channel.transport() == "memory");
  channel.run_on_gpu(std::vector{PostStep{StepKind::operation, {Verb::put, 0, 0, 100, 0}, 0}}, 32, nullptr);
  channel.finish_on_gpu();
  std::vector<std::byte> came(200);
  const CurrentContext current{all().driver(), all().gpu(1).context()};
  LINKSCOPE_CU(all().driver(), cuMemcpyDtoH, came.data(), remote.start(), came.size());
  CHECK(std::memcmp(came.data(), sent.data(), 100) == 0);
  CHECK(came[100] == std::byte{});
}

TEST_CASE("a full ring of messages refuses the next one, and takes it when the receiver has given slots back") {
  Memory memory{4_KiB};
  const u64 at = reinterpret_cast<u64>(memory.data());
  const Ring ring{at + 128, at, 4, 2};
  CpuWords words;
  MessageSender sender{ring};
  MessageReceiver receiver{ring};
  const auto send = [&](u64 value) {
    return sender.try_send(words, OneThread{}, 8, [value](unsigned) { return value; });
  };
  u64 came = 0;
  const auto receive = [&] {
    return receiver.try_receive(words, OneThread{}, [&](unsigned, u64 word) { came = word; });
  };
  for (u64 lap = 0; lap < 5; ++lap) {
    for (u64 i = 0; i < 4; ++i) CHECK(send(4 * lap + i));
    CHECK_FALSE(send(99));
    for (u64 i = 0; i < 4; ++i) {
      CHECK(receive());
      CHECK(came == 4 * lap + i);
    }
    CHECK_FALSE(receive());
  }
}

TEST_CASE("operations of a descriptor keep all of their numbers") {
  for (const auto verb : {Verb::put, Verb::get})
    for (const RingWord value : {RingWord{0}, RingWord{1}, RingWord{0x5555}, most_offset}) {
      const Operation one{verb, value, most_offset - value, value & most_bytes_of_operation, 0};
      const auto [verb_back, local, remote, bytes, unused] = unpacked(packed(one));
      CHECK((verb_back == verb && local == one.local && remote == one.remote && bytes == one.bytes));
      CHECK((packed(one).second & valid_bit) == 0);
    }
  for (const auto verb : {Verb::set, Verb::add}) {
    const auto back = unpacked(packed({verb, 0, most_offset, 0, ~u64{0}}));
    CHECK((back.verb == verb && back.remote == most_offset && back.value == ~u64{0}));
  }
}
