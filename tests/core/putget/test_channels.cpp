// Channels between memory of this process: CPU threads and kernels of GPUs post, through each transport.
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
    Region local{all(), sent.data(), sent.size()}, remote{all(), came.data(), came.size()};
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
      Region local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), 64_KiB};
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
