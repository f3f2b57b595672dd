// Calls that make no sense, and what fails under a channel: each has an error that says what is wrong, and nothing hangs.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <sstream>
#include <thread>

#include "doctest.h"
#include "error_of.hpp"
#include "putget_testing.hpp"

using namespace linkscope;

namespace {

constexpr Seconds brief{0.05}, patience{60.0};

/// A channel between pageable memory of two owners.
struct Pair64 {
  explicit Pair64(ChannelOptions options = {.timeout = brief}) : channel{all(), local, remote, options} {}
  Memory sent{64_KiB}, came{64_KiB};
  PutRegion local{all(), sent.data(), sent.size()}, remote{all(), came.data(), came.size()};
  OpenChannel channel;
};

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a region needs memory that this process has, up to its end") {
  Memory memory{4_KiB};
  CHECK(says(error_of([&] { PutRegion{all(), nullptr, 64}; }), "NULL"));
  CHECK(says(error_of([&] { PutRegion{all(), memory.data(), 0}; }), "0 B"));
  CHECK(says(error_of([&] { PutRegion{all(), reinterpret_cast<void*>(u64{64}), 64}; }), "cannot write"));
  const DeviceBytes on_gpu{4_KiB};
  CHECK(says(error_of([&] { PutRegion{all(), on_gpu.pointer(), 5_KiB}; }), "the memory ends after"));
}

TEST_CASE("a region is imported only by a handle") {
  for (const std::string& text :
       {std::string{}, std::string{"shm"}, std::string{"shm x 3 64"}, std::string{"shm 1 2 3 4"},
        std::string{"udp 1 2 3"}, std::string{"tcp 127.0.0.1 4711 many"}, std::string{"tcp 127.0.0.1 65536 64"},
        std::string{"tcp 127.0.0.1 port 64"}, std::string{"tcp 127.0.0.1 4711 -1"},
        "ipc " + std::to_string(getpid()) + " 64 0 " + std::string(128, 'x'),
        "ipc " + std::to_string(getpid()) + " 64 0 " + std::string(126, '0') + "-1"})
    CHECK(says(error_of([&] { PutRegion{all(), text, 0}; }), "no handle"));
  CHECK(says(error_of([&] { PutRegion{all(), "shm 4194303 3 64", 0}; }), "has ended"));
}

TEST_CASE("operations end inside of both regions, for every transport, and nothing is moved otherwise") {
  for (const auto transport : {Transport::memory, Transport::proxy}) {
    Pair64 pair{{.transport = transport}};
    pair.sent.fill(1);
    auto& channel = pair.channel;
    const u64 size = pair.sent.size(), huge = ~u64{0} - 7;
    for (const u64 beyond : {size - 63, size, size + 64, huge}) {
      CHECK(says(error_of([&] { channel.put(beyond, 0, 64); }), "outside of its region"));
      CHECK(says(error_of([&] { channel.put(0, beyond, 64); }), "outside of its region"));
      CHECK(says(error_of([&] { channel.get(beyond, 0, 64); }), "outside of its region"));
      CHECK(says(error_of([&] { channel.put_signal(0, beyond, 64, 0, 1); }), "outside of its region"));
    }
    for (const u64 word : {size - 4, size, huge}) {
      CHECK(error_of([&] { channel.signal(word, 1); }) != "");
      CHECK(error_of([&] { channel.add(word, 1); }) != "");
      CHECK(error_of([&] { channel.await(word, 1); }) != "");
      CHECK(error_of([&] { channel.put_signal(0, 0, 64, word, 1); }) != "");
    }
    channel.quiet();
    CHECK(std::all_of(pair.came.data(), pair.came.data() + size, [](std::byte one) { return one == std::byte{}; }));
    channel.put(size - 64, size - 64, 64);
    channel.put(size, size, 0);
    channel.quiet();
    CHECK(std::equal(pair.came.data() + size - 64, pair.came.data() + size, pair.sent.data() + size - 64));
  }
}

TEST_CASE("words are aligned to 8 bytes") {
  Pair64 pair;
  for (const u64 word : {1, 4, 60'004}) {
    CHECK(says(error_of([&] { pair.channel.signal(word, 1); }), "multiple of 8"));
    CHECK(says(error_of([&] { pair.channel.add(word, 1); }), "multiple of 8"));
    CHECK(says(error_of([&] { pair.channel.await(word, 1); }), "multiple of 8"));
  }
}

TEST_CASE("a wait for what nobody sends ends, and says what it waited for") {
  Pair64 pair;
  reinterpret_cast<u64*>(pair.sent.data())[8] = 6;
  const auto text = error_of([&] { pair.channel.await(64, 7); });
  CHECK(says(text, "the word at offset 64 of the local region to reach 7: it is 6"));
}

TEST_CASE("a poll says at once whether a word has reached a value") {
  Pair64 pair;
  auto& word = reinterpret_cast<u64*>(pair.sent.data())[8];
  word = 6;
  bool there = true;
  pair.channel.poll(64, 7, &there);
  CHECK(!there);
  word = 7;
  pair.channel.poll(64, 7, &there);
  CHECK(there);
  CHECK(says(error_of([&] { pair.channel.poll(65, 7, &there); }), "multiple of 8"));
  CHECK(error_of([&] { pair.channel.poll(pair.sent.size(), 7, &there); }) != "");
}

TEST_CASE("a ring has 2 slots or more, and descriptors of 16 to 128 bytes") {
  for (const u32 slots : {0u, 1u, (1u << 20) + 1})
    CHECK(says(error_of([&] { Pair64{{.transport = Transport::proxy, .slots = slots}}; }), "a ring of"));
  for (const u32 bytes : {0u, 8u, 24u, 144u})
    CHECK(
        says(error_of([&] { Pair64{{.transport = Transport::proxy, .descriptor_bytes = bytes}}; }), "descriptors of"));
  CHECK(says(error_of([&] { Pair64{{.timeout = Seconds{0}}}; }), "time-out"));
  Pair64 smallest{{.transport = Transport::proxy, .slots = 2, .descriptor_bytes = 16}};
  for (u64 i = 1; i <= 100; ++i) smallest.channel.put_signal(0, 0, 64, word_at, i);
  smallest.channel.quiet();
  CHECK(*reinterpret_cast<u64*>(smallest.came.data() + word_at) == 100);
}

TEST_CASE("a channel has one user: a second kernel is refused, and a CPU thread where kernels post") {
  DeviceBytes on_gpu{64_KiB};
  PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), 64_KiB};
  OpenChannel channel{all(), local, remote, {.gpu = 0, .timeout = brief}};
  CpuWords::release(channel.view().word(ControlWord::owner), 1);
  channel.run_on_gpu(std::vector{PostStep{StepKind::quiet, {}, 0}}, 32, nullptr);
  CHECK(says(error_of([&] { channel.finish_on_gpu(); }), "another user"));
  CHECK(says(error_of([&] { channel.put(0, 0, 8); }), "kernels of a GPU post"));
  Pair64 by_cpu;
  CHECK(says(error_of([&] { by_cpu.channel.run_on_gpu({}, 32, nullptr); }), "CPU threads post"));
}

TEST_CASE("while a CPU thread waits in a channel, another one that posts or polls there is refused") {
  Pair64 pair{{.timeout = patience}};
  auto* word = reinterpret_cast<u64*>(pair.sent.data()) + 8;
  std::string of_first;
  std::thread first{[&] {  // again, where the other one was in the channel just then
    do of_first = error_of([&] { pair.channel.await(64, 7); });
    while (says(of_first, "another user"));
  }};
  const auto refused = [&](const auto& call) {
    std::string text;
    for (const auto end = std::chrono::steady_clock::now() + patience;
         text.empty() && std::chrono::steady_clock::now() < end;)
      text = error_of(call);
    return says(text, "another user");
  };
  bool there = false;
  CHECK(refused([&] { pair.channel.put(0, 0, 8); }));
  CHECK(refused([&] { pair.channel.poll(64, 7, &there); }));
  CpuWords::release(reinterpret_cast<u64>(word), 7);
  first.join();
  CHECK(of_first == "");
  CHECK(error_of([&] { pair.channel.put(0, 0, 8); }) == "");
}

TEST_CASE("a kernel that waits in vain ends, and the channel says what it waited for") {
  DeviceBytes on_gpu{64_KiB};
  PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), 64_KiB};
  OpenChannel channel{all(), local, remote, {.gpu = 0, .timeout = brief}};
  channel.run_on_gpu(std::vector{PostStep{StepKind::await, {Verb::none, 8, 0, 0, 3}, 0}}, 1, nullptr);
  CHECK(
      says(error_of([&] { channel.finish_on_gpu(); }), "the word at offset 8 of the local region to reach 3: it is 0"));
}

TEST_CASE("a ring in GPU memory needs a GPU that posts and a kernel that serves") {
  Pair64 pair;
  DeviceBytes on_gpu{64_KiB};
  PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), 64_KiB};
  for (const auto& options :
       {ChannelOptions{.ring_gpu = 0}, ChannelOptions{.transport = Transport::kernel, .ring_gpu = 0},
        ChannelOptions{.gpu = 0, .transport = Transport::proxy, .ring_gpu = 0}})
    CHECK(says(error_of([&] { OpenChannel{all(), local, remote, options}; }), "needs a GPU that posts"));
}

TEST_CASE("blocks that post together are at most as many as the GPU has SMs, and wait for at most 10 s") {
  DeviceBytes on_gpu{64_KiB};
  PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), 64_KiB};
  OpenChannel channel{all(), local, remote, {.gpu = 0}};
  for (const u32 blocks : {0u, 1000u})
    CHECK(says(error_of([&] { channel.run_on_gpu({}, 32, nullptr, blocks); }), "as many as GPU 0 has SMs"));
  OpenChannel patient{all(), local, remote, {.gpu = 0, .timeout = Seconds{11}}};
  CHECK(says(error_of([&] { patient.run_on_gpu({}, 32, nullptr, 2); }), "at most 10 s"));
}

TEST_CASE("memory by a file descriptor is imported while its process has it, and is exported by that process only") {
  auto made = std::make_unique<PutRegion>(all(), 64_KiB, OnGpu{0});
  const auto handle = made->handle();
  CHECK(says(error_of([&] { PutRegion(all(), 0, OnGpu{0}); }), "0 B"));
  CHECK(says(error_of([&] { PutRegion(all(), 64, OnGpu{99}); }), "there is no GPU 99"));
  {
    const PutRegion imported{all(), handle, 1};
    CHECK(imported.mapped_for() == 1);
    CHECK(says(error_of([&] { (void)imported.handle(); }), "no other process can map"));
  }
  made.reset();
  CHECK(says(error_of([&] { PutRegion(all(), handle, 0); }), "does not give it"));
}

TEST_CASE("memory that its owner freed is an error of the channel, not a crash") {
  DeviceBytes on_gpu{64_KiB};
  Memory sent{64_KiB};
  PutRegion local{all(), sent.data(), sent.size()}, remote{all(), on_gpu.pointer(), on_gpu.size()};
  OpenChannel channel{all(), local, remote, {}};
  channel.put(0, 0, 64);
  channel.quiet();
  on_gpu.free();
  channel.put(0, 0, 64);
  CHECK(says(error_of([&] { channel.quiet(); }), "was freed while a channel used it"));
  CHECK(says(error_of([&] {
               for (int i = 0; i < 1000; ++i) channel.put(0, 0, 64);
             }),
             "was freed"));
}

TEST_CASE("a kernel that would post to memory that its owner freed, or from it, is not launched") {
  const std::vector put{PostStep{StepKind::operation, {Verb::put, 0, 0, 64, 0}, 0}, PostStep{StepKind::quiet, {}, 0}};
  for (const bool of_peer : {true, false}) {
    CAPTURE(of_peer);
    DeviceBytes here{64_KiB, 0}, peer{64_KiB, 1};
    PutRegion local{all(), here.pointer(), here.size()}, remote{all(), peer.pointer(), peer.size()};
    OpenChannel channel{all(), local, remote, {.gpu = 0, .transport = Transport::memory}};
    channel.run_on_gpu(put, 32, nullptr);
    channel.finish_on_gpu();
    (of_peer ? peer : here).free();
    CHECK(says(error_of([&] { channel.run_on_gpu(put, 32, nullptr); }), "was freed while a channel used it"));
  }
}

TEST_CASE("where a poster does not reach a region, a proxy serves it, and the channel says why") {
  DeviceBytes first{64_KiB, 0}, second{64_KiB, 1};
  Memory pageable{64_KiB};
  PutRegion a{all(), first.pointer(), first.size()}, b{all(), second.pointer(), second.size()},
      c{all(), pageable.data(), pageable.size()};
  CHECK(OpenChannel{all(), a, b, {.gpu = 0}}.transport() == "memory");
  CHECK(OpenChannel{all(), a, c, {.gpu = 0}}.transport() ==
        "proxy (copy engine): a GPU does not reach pageable memory");
  CHECK(
      says(OpenChannel{all(), c, a, {}}.transport(), "proxy (copy engine): a CPU thread does not reach memory of GPU"));
  CHECK(says(error_of([&] { OpenChannel{all(), a, c, {.gpu = 0, .transport = Transport::memory}}; }),
             "no channel by memory"));
  CHECK(says(error_of([&] { OpenChannel{all(), a, b, {.gpu = 99}}; }), "there is no GPU 99"));
}

TEST_CASE("a server of TCP that does not answer is an error of the channel") {
  const Descriptor listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(listen(listener.get(), 1) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  Memory sent{64_KiB};
  PutRegion local{all(), sent.data(), sent.size()},
      remote{all(), "tcp 127.0.0.1 " + std::to_string(ntohs(at.sin_port)) + " 4096", 0};
  OpenChannel channel{all(), local, remote, {.timeout = brief}};
  channel.put(0, 0, 64);
  const auto text = error_of([&] {
    channel.quiet();
    channel.quiet();
  });
  CHECK((says(text, "does not answer by TCP") || says(text, "the end of 1 descriptors")));
}

TEST_CASE("a server of TCP goes on when the process had too many files, and forgets clients that have ended") {
  Memory sent{4_KiB}, came{4_KiB};
  PutRegion local{all(), sent.data(), sent.size()}, served{all(), came.data(), came.size()};
  PutRegion remote{all(), served.serve_tcp("127.0.0.1", 0), 0};
  const auto put = [&](std::byte value) {
    OpenChannel channel{all(), local, remote, {.timeout = patience}};
    sent.data()[0] = value;
    channel.put(0, 0, 1);
    channel.quiet();
    CHECK(came.data()[0] == value);
  };
  put(std::byte{1});
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, std::filesystem::directory_iterator{});
  };
  const auto before = open_files();
  for (unsigned i = 0; i < 20; ++i) put(std::byte{2});
  CHECK(open_files() < before + 10);
  std::vector<Descriptor> all_files;
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  const rlimit few{static_cast<rlim_t>(before + 10), files.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const auto client = [&] { return Descriptor{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}; };
  // The server has a descriptor for the first client already, and one of a client that has ended for the second.
  const Descriptor clients[] = {client(), client(), client()};
  while (all_files.empty() || all_files.back()) all_files.push_back(client());
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<in_port_t>(std::stoul(remote.tcp_address().substr(remote.tcp_address().find(' ')))));
  for (const auto& one : clients) CHECK(connect(one.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  all_files.clear();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
  put(std::byte{3});
}

TEST_CASE(
    "a server of TCP closes the connection of a client that asks for more than its region, and keeps its memory") {
  Memory served{8_KiB};
  PutRegion region{all(), served.data(), 4_KiB};
  std::istringstream handle{region.serve_tcp("127.0.0.1", 0)};
  std::string kind, address;
  in_port_t port = 0;
  handle >> kind >> address >> port;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(port);
  for (const u64 offset : {4_KiB - 7, 4_KiB, ~u64{0} - 7}) {
    const Descriptor client{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    REQUIRE(connect(client.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    const u64 request[] = {static_cast<u64>(Verb::put), offset, 8, 0, ~u64{0}};  // the last word is the data
    REQUIRE(send(client.get(), request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    char answer = 0;
    CHECK(recv(client.get(), &answer, 1, 0) <= 0);
  }
  CHECK(std::all_of(served.data(), served.data() + 8_KiB, [](std::byte one) { return one == std::byte{}; }));
}

TEST_CASE("an address where nobody serves a region, and one that is none, are refused") {
  Memory sent{64_KiB};
  PutRegion local{all(), sent.data(), sent.size()}, nobody{all(), std::string{"tcp 127.0.0.1 1 4096"}, 0};
  CHECK(says(error_of([&] { OpenChannel{all(), local, nobody, {}}; }), "nobody serves a region"));
  CHECK(says(error_of([&] { (void)local.serve_tcp("localhost", 0); }), "is no IPv4 address"));
}
