// Many messages of random sizes between random pairs, in random order: none is lost, doubled or torn, and those of a pair
// come in order.
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include "doctest.h"
#include "error_of.hpp"
#include "other_process.hpp"
#include "putget_testing.hpp"
#include "stream_of_puts.hpp"
#include "traffic.hpp"

using namespace linkscope;

namespace {

constexpr u32 actors = 4;
constexpr u64 messages_each_of(u64 all) { return all / (actors * (actors - 1)); }

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

TEST_CASE("messages between threads arrive once, whole and in order") {
  const u64 each = messages_each_of(messages_in_all());
  Memory memory{Traffic{0, actors, each}.bytes()};
  const Traffic traffic{reinterpret_cast<u64>(memory.data()), actors, each};
  std::vector<std::string> wrong(actors);
  std::vector<std::thread> threads;
  for (u32 self = 0; self < actors; ++self)
    threads.emplace_back([&, self] { wrong[self] = traffic.run(self, patience); });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(actors));
}

TEST_CASE("the other process of the traffic" * doctest::skip()) {
  PutRegion region{all(), setting("PUTGET_HANDLE"), 0};
  const Traffic traffic{region.start(), actors, std::stoull(setting("PUTGET_EACH"))};
  const auto wrong = traffic.run(static_cast<u32>(std::stoul(setting("PUTGET_SELF"))), patience);
  std::printf("> %s.\n", wrong.c_str());
}

TEST_CASE("messages between processes arrive once, whole and in order") {
  const u64 each = messages_each_of(messages_in_all());
  PutRegion region{all(), Traffic{0, actors, each}.bytes()};
  std::vector<std::unique_ptr<OtherProcess>> others;
  for (u32 self = 1; self < actors; ++self)
    others.push_back(std::make_unique<OtherProcess>(
        "the other process of the traffic",
        std::vector<std::pair<std::string, std::string>>{{"PUTGET_HANDLE", region.handle()},
                                                         {"PUTGET_EACH", std::to_string(each)},
                                                         {"PUTGET_SELF", std::to_string(self)}}));
  CHECK(Traffic{region.start(), actors, each}.run(0, patience) == "");
  for (auto& other : others) CHECK(other->line() == ".");
}

TEST_CASE("puts with signals arrive whole and in order by every transport between threads") {
  const u64 count = messages_in_all() / 10;
  for (const auto transport : {Transport::memory, Transport::proxy})
    for (const u32 bytes : {16u, 32u}) {
      PutRegion here{all(), region_bytes}, there{all(), region_bytes};
      const ChannelOptions options{.transport = transport, .slots = 4, .descriptor_bytes = bytes, .timeout = patience};
      OpenChannel forth{all(), here, there, options}, back{all(), there, here, options};
      CAPTURE(forth.transport());
      std::string wrong;
      std::thread receiver{[&] { wrong = receive_all(back, bytes_at(there), count); }};
      send_all(forth, const_cast<std::byte*>(bytes_at(here)), count);
      receiver.join();
      CHECK(wrong == "");
    }
}

// The other process receives into its own region, and signals into the first one's, each by its handle.
TEST_CASE("the other process of the puts" * doctest::skip()) {
  PutRegion here{all(), region_bytes}, there{all(), setting("PUTGET_HANDLE"), 0};
  const bool tcp = setting("PUTGET_CHANNEL") == "tcp";
  const auto transport = setting("PUTGET_CHANNEL") == "memory" ? Transport::memory : Transport::proxy;
  std::printf("> %s\n", (tcp ? here.serve_tcp("127.0.0.1", 0) : here.handle()).c_str());
  std::fflush(stdout);
  OpenChannel back{all(), here, there, {.transport = transport, .timeout = patience}};
  const auto wrong = receive_all(back, bytes_at(here), std::stoull(setting("PUTGET_COUNT")));
  std::printf("> %s.\n", wrong.c_str());
  std::fflush(stdout);
  wait_for_the_end();
}

TEST_CASE("puts with signals arrive whole and in order between processes, by memory, a proxy and TCP") {
  for (const std::string way : {"memory", "proxy", "tcp"}) {
    CAPTURE(way);
    const u64 count = messages_in_all() / 10;
    PutRegion here{all(), region_bytes};
    OtherProcess other{"the other process of the puts",
                       {{"PUTGET_HANDLE", way == "tcp" ? here.serve_tcp("127.0.0.1", 0) : here.handle()},
                        {"PUTGET_CHANNEL", way},
                        {"PUTGET_COUNT", std::to_string(count)}}};
    PutRegion there{all(), other.line(), 0};
    OpenChannel forth{
        all(), here, there, {.transport = way == "memory" ? Transport::memory : Transport::proxy, .timeout = patience}};
    send_all(forth, const_cast<std::byte*>(bytes_at(here)), count);
    CHECK(other.line() == ".");
  }
}

// The other process puts into memory of the first one's GPU, by loads and stores and by TMA.
TEST_CASE("the other process of the GPU's memory" * doctest::skip()) {
  PutRegion local{all(), region_bytes}, remote{all(), setting("PUTGET_HANDLE"), 1};
  auto* bytes = reinterpret_cast<u64*>(local.start());
  for (u64 i = 0; i < 100; ++i) bytes[i] = 3 * i;
  for (const bool tma : {false, true}) {
    OpenChannel channel{all(), local, remote, {.gpu = 1, .tma = tma}};
    const u64 at = tma ? 8192 : 4096;
    channel.run_on_gpu(std::vector{PostStep{StepKind::operation, {Verb::put, 0, at, 800, 0}, 0}}, 32, nullptr);
    channel.finish_on_gpu();
    std::printf("> %s\n", channel.transport().c_str());
    std::fflush(stdout);
  }
  wait_for_the_end();
}

TEST_CASE("memory of a GPU is shared between processes by a CUDA IPC handle and by a file descriptor") {
  for (const bool created : {false, true}) {
    CAPTURE(created);
    const DeviceBytes allocated{2 * region_bytes};
    void* inside = static_cast<std::byte*>(allocated.pointer()) + 8192;
    auto region = created ? std::make_unique<PutRegion>(all(), u64{region_bytes}, OnGpu{0})
                          : std::make_unique<PutRegion>(all(), inside, u64{region_bytes});
    CHECK(region->handle().starts_with(created ? "fd " : "ipc "));
    OtherProcess other{"the other process of the GPU's memory", {{"PUTGET_HANDLE", region->handle()}}};
    CHECK(other.line() == "memory");
    CHECK(other.line() == "memory");
    CHECK(other.end() == 0);
    const CurrentContext current{all().driver(), all().gpu(0).context()};
    for (const u64 at : {4096, 8192}) {
      std::vector<u64> found(100);
      LINKSCOPE_CU(all().driver(), cuMemcpyDtoH, found.data(), region->start() + at, 800);
      for (u64 i = 0; i < 100; ++i) CHECK(found[i] == 3 * i);
    }
  }
}

/// Puts `before` messages to another process by each way, kills it, and checks that `after` fails because it has ended.
template <class After>
void check_killed(u64 before, After after) {
  for (const std::string way : {"memory", "proxy", "tcp"}) {
    CAPTURE(way);
    PutRegion here{all(), region_bytes};
    OtherProcess other{"the other process of the puts",
                       {{"PUTGET_HANDLE", way == "tcp" ? here.serve_tcp("127.0.0.1", 0) : here.handle()},
                        {"PUTGET_CHANNEL", way},
                        {"PUTGET_COUNT", "1000000000"}}};
    PutRegion there{all(), other.line(), 0};
    OpenChannel forth{
        all(), here, there, {.transport = way == "memory" ? Transport::memory : Transport::proxy, .timeout = patience}};
    send_all(forth, const_cast<std::byte*>(bytes_at(here)), before);
    other.kill();
    const auto text = error_of([&] { after(forth); });
    CAPTURE(text);
    CHECK((text.find("has ended") != std::string::npos || text.find("has closed") != std::string::npos));
  }
}

TEST_CASE("a process that is killed in the middle is an error, not a hang") {
  check_killed(100, [](OpenChannel& forth) {
    for (u64 n = 100;; ++n) {
      forth.await(word_of(n), n / slots);
      forth.put_signal(0, 0, 64, word_of(n), n / slots + 1);
      forth.quiet();
    }
  });
}

TEST_CASE("who waits or polls for the signal of a process that is killed learns so without posting") {
  check_killed(0, [](OpenChannel& forth) { forth.await(word_of(0), 1); });
  check_killed(0, [](OpenChannel& forth) {
    for (bool there = false; !there;) forth.poll(word_of(0), 1, &there);
  });
}
