// Channels through a network card: the mock checks every bit of each element and moves the data.
#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "doctest.h"
#include "error_of.hpp"
#include "mock_card.hpp"
#include "putget_testing.hpp"
#include "stream_of_puts.hpp"

using namespace linkscope;

namespace {

constexpr Seconds brief{0.05};
constexpr u32 blocks = 16, number = 0x51;

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A card that works beside the posters until it goes.
class AtWork {
 public:
  explicit AtWork(MockCard& card) : card_{card} {
    card_.beside_posters = true;
    thread_ = std::thread{[this] {
      while (!stops_) {
        card_.work();
        std::this_thread::yield();
      }
    }};
  }
  ~AtWork() {
    stops_ = true;
    thread_.join();
    card_.beside_posters = false;
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  MockCard& card_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

/// The queues of one pair, in memory that a card knows.
struct Queues {
  Queues(MockCard& card, u32 blocks_of_queue, u32 entries, u32 pair_number)
      : memory{(u64{blocks_of_queue} + entries) * 64 + 192},
        send_bytes{u64{blocks_of_queue} * 64},
        completions_bytes{u64{entries} * 64},
        number_of_pair{pair_number} {
    MockCard::Pair made;
    made.number = pair_number;
    made.send = {memory.data(), send_bytes};
    made.send_record = reinterpret_cast<u32*>(words());
    made.doorbell = reinterpret_cast<u64*>(words() + 128);
    const std::span entries_of{memory.data() + send_bytes, completions_bytes};
    made.completions = card.add_completions(entries_of, *reinterpret_cast<u32*>(words() + 64));
    (void)card.add_pair(made);
    old_key = card.add_region({reinterpret_cast<std::byte*>(&old_value), sizeof old_value});
  }
  [[nodiscard]] std::byte* words() { return memory.data() + send_bytes + completions_bytes; }
  [[nodiscard]] QueuePair pair(const void* local, u32 local_key) {
    QueuePair made;
    made.number = number_of_pair;
    made.send = memory.data();
    made.completions = memory.data() + send_bytes;
    made.send_bytes = send_bytes;
    made.completions_bytes = completions_bytes;
    made.send_record = words();
    made.completions_record = words() + 64;
    made.doorbell = words() + 128;
    made.local = reinterpret_cast<u64>(local);
    made.old_value = reinterpret_cast<u64>(&old_value);
    made.local_key = local_key;
    made.old_value_key = old_key;
    return made;
  }
  Memory memory;
  u64 send_bytes, completions_bytes;
  u32 number_of_pair;
  alignas(8) u64 old_value = 0;
  u32 old_key = 0;
};

/// A pair and two regions that a card knows: `local`, and `remote` as another process imports it.
struct Ends {
  Ends() {
    here.fill(1);
    local_key = card.add_region({here.data(), here.size()});
    remote_key = card.add_region({there.data(), there.size()});
  }
  [[nodiscard]] std::byte* words() { return queues.words(); }
  [[nodiscard]] QueuePair pair() { return queues.pair(here.data(), local_key); }
  [[nodiscard]] std::string handle(u64 beyond = 0, u32 key_error = 0) {
    const PutRegion registered{all(), there.data(), there.size()};
    return registered.card_handle(reinterpret_cast<u64>(there.data()) + beyond, remote_key ^ key_error);
  }
  [[nodiscard]] u64& word(u64 offset) { return *reinterpret_cast<u64*>(there.data() + offset); }
  [[nodiscard]] std::string faults() const {
    std::string text;
    for (const auto& fault : card.faults) text += fault + "\n";
    return text;
  }

  MockCard card;
  Queues queues{card, blocks, blocks, number};
  Memory here{64_KiB}, there{64_KiB};
  u32 local_key = 0, remote_key = 0;
};

/// A channel of a CPU thread.
struct Linked : Ends {
  explicit Linked(ChannelOptions options = {.timeout = brief}, const std::string& other_handle = "")
      : local{all(), here.data(), here.size()}, remote{all(), other_handle.empty() ? handle() : other_handle, 0} {
    open(options);
  }
  void open(ChannelOptions options) {
    if (!options.pair) options.pair = pair();
    channel.emplace(all(), local, remote, options);
  }
  PutRegion local, remote;
  std::optional<OpenChannel> channel;
};

}  // namespace

TEST_CASE("a CPU thread puts, gets, signals and adds through a network card") {
  Linked made;
  CHECK(made.channel->transport() == "network card (queue pair 81)");
  made.word(word_at + 8) = 40;
  std::memset(made.there.data() + 30'000, 7, 3000);
  made.channel->put(100, 0, 1000);
  made.channel->put_signal(2000, 5000, 999, word_at, 9);
  made.channel->get(40'000, 30'000, 3000);
  made.channel->add(word_at + 8, 0x1'0000'0002);
  made.channel->put_signal(0, 0, 0, word_at + 16, 3);
  made.channel->put(0, 0, 0);
  made.card.work();
  made.channel->flush();
  made.channel->quiet();
  CHECK(std::memcmp(made.there.data() + 100, made.here.data(), 1000) == 0);
  CHECK(std::memcmp(made.there.data() + 2000, made.here.data() + 5000, 999) == 0);
  CHECK(std::memcmp(made.here.data() + 40'000, made.there.data() + 30'000, 3000) == 0);
  CHECK(made.word(word_at) == 9);
  CHECK(made.word(word_at + 8) == 0x1'0000'002a);
  CHECK(made.word(word_at + 16) == 3);
  CHECK(made.faults() == "");
}

TEST_CASE("a signal and its put take one completion of the card") {
  Linked made;
  for (u64 i = 0; i < 4; ++i) made.channel->put_signal(0, 0, 64, word_at, i + 1);
  made.card.work();
  made.channel->quiet();
  const std::byte* record = made.words() + 64;
  CHECK(record[3] == std::byte{4});
  CHECK(made.word(word_at) == 4);
}

TEST_CASE("a put does not overtake the get before it, also where the card reads late") {
  Linked made;
  made.card.late_reads = true;
  std::memset(made.there.data(), 1, 64);
  std::memset(made.here.data(), 2, 64);
  made.channel->get(4096, 0, 64);
  made.channel->put(0, 0, 64);
  made.card.work();
  made.channel->quiet();
  CHECK(made.here.data()[4096] == std::byte{1});
  CHECK(made.there.data()[0] == std::byte{2});
  made.channel->put(0, 4096, 64);  // of what the get brought
  made.card.work();
  made.channel->quiet();
  CHECK(made.there.data()[0] == std::byte{1});
}

TEST_CASE("puts with signals wrap the queues of a card many times, in step with it and beside it") {
  for (const bool beside : {false, true}) {
    CAPTURE(beside);
    Linked made{{.timeout = Seconds{20}}};
    {
      std::optional<AtWork> working;
      if (beside) working.emplace(made.card);
      for (u64 i = 0; i < 2000; ++i) {
        const u64 bytes = 1 + i * 37 % 500, at = i * 61 % 50'000;
        made.channel->put_signal(at, at, bytes, word_at, i + 1);
        if (i % 3 == 0) made.channel->add(word_at + 8, 1);
        if (beside) continue;
        made.card.work();
        if (i % 5 == 0) made.channel->quiet();
        CHECK(std::memcmp(made.there.data() + at, made.here.data() + at, bytes) == 0);
      }
      if (!beside) made.card.work();
      made.channel->quiet();
    }
    CHECK(made.word(word_at) == 2000);
    CHECK(made.word(word_at + 8) == 667);
    CHECK(made.faults() == "");
  }
}

TEST_CASE("puts with signals through a card arrive whole and in order between threads") {
  const u64 count = messages_in_all() / 10;
  MockCard card;
  Queues there_queues{card, 4, 4, 1}, back_queues{card, 4, 4, 2};
  PutRegion here{all(), region_bytes}, there{all(), region_bytes};
  const auto memory_of = [](PutRegion& one) {
    return std::span{reinterpret_cast<std::byte*>(one.start()), one.bytes()};
  };
  const u32 here_key = card.add_region(memory_of(here)), there_key = card.add_region(memory_of(there));
  PutRegion to_there{all(), there.card_handle(there.start(), there_key), 0},
      to_here{all(), here.card_handle(here.start(), here_key), 0};
  {
    const AtWork working{card};
    OpenChannel forth{
        all(),
        here,
        to_there,
        {.timeout = patience, .pair = there_queues.pair(reinterpret_cast<void*>(here.start()), here_key)}};
    OpenChannel back{
        all(),
        there,
        to_here,
        {.timeout = patience, .pair = back_queues.pair(reinterpret_cast<void*>(there.start()), there_key)}};
    std::string wrong;
    std::thread receiver{[&] { wrong = receive_all(back, bytes_at(there), count); }};
    send_all(forth, const_cast<std::byte*>(bytes_at(here)), count);
    receiver.join();
    CHECK(wrong == "");
  }
  for (const auto& fault : card.faults) FAIL_CHECK(fault);
}

TEST_CASE("a full queue of a card waits for room, says so in vain, and takes more when the card works again") {
  Linked made;
  for (u32 i = 0; i < blocks; ++i) made.channel->put(0, 0, 8);
  const auto text = error_of([&] { made.channel->put(0, 0, 8); });
  CHECK(says(text, "room in the send queue of 16 blocks: 0 are complete, and 1 must be"));
  CHECK(says(error_of([&] { made.channel->quiet(); }), "the end of 16 blocks: 0 are complete"));
  made.card.work();
  for (u32 i = 0; i < blocks; ++i) made.channel->put(8, 8, 8);
  made.card.work();
  made.channel->quiet();
  CHECK(std::memcmp(made.there.data(), made.here.data(), 16) == 0);
  CHECK(made.faults() == "");
}

TEST_CASE("what a card cannot do is an error of the channel that names the element, and stays one") {
  const auto told = [](const std::function<void(Linked&)>& spoil, const std::string& handle_of = "") {
    Linked made{{.timeout = brief}, handle_of};
    spoil(made);
    made.channel->put(0, 0, 64);
    made.channel->put(64, 64, 64);
    made.card.work();
    const auto first = error_of([&] { made.channel->quiet(); });
    CHECK(error_of([&] { made.channel->put(0, 0, 64); }) == first);
    CHECK(error_of([&] { made.channel->quiet(); }) == first);
    CHECK(made.there.data()[0] == std::byte{});
    return first;
  };
  const auto with_pair = [](Linked& made, auto change) {
    auto pair = made.pair();
    change(pair);
    made.channel.reset();
    made.open({.timeout = brief, .pair = pair});
  };
  CHECK(told([&](Linked& made) { with_pair(made, [](QueuePair& pair) { pair.local_key ^= 1; }); }) ==
        "element 0 of queue 81: local protection error: the local key, or the range, is not registered");
  CHECK(says(told([&](Linked& made) { with_pair(made, [](QueuePair& pair) { pair.local += 64_KiB; }); }),
             "local protection error"));
  CHECK(says(told([](Linked& made) { made.card.cut(0); }), "the other side does not answer, or has ended"));
  for (const auto& [beyond, key] : {std::pair{u64{0}, 1u}, {64_KiB, 0u}}) {
    Ends other;
    Linked made{{.timeout = brief}, ""};
    const PutRegion wrong{all(), made.handle(beyond, key), 0};
    made.channel.reset();
    OpenChannel channel{all(), made.local, const_cast<PutRegion&>(wrong), {.timeout = brief, .pair = made.pair()}};
    channel.put(0, 0, 64);
    made.card.work();
    CHECK(error_of([&] { channel.quiet(); }) ==
          "element 0 of queue 81: remote access error: the remote key, or the range, is not registered");
  }
}

TEST_CASE("a peer that goes is lost, and other errors of a card are failures") {
  Linked made;
  made.card.cut(0);
  made.channel->put(0, 0, 64);
  made.card.work();
  try {
    made.channel->quiet();
    FAIL("the put went nowhere");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::lost);
  }
}

TEST_CASE("operations outside of a region behind a card are refused before they are posted") {
  Linked made;
  CHECK(says(error_of([&] { made.channel->put(64_KiB - 8, 0, 64); }), "outside of its region"));
  CHECK(says(error_of([&] { made.channel->get(0, 64_KiB, 64); }), "outside of its region"));
  CHECK(says(error_of([&] { made.channel->add(4, 1); }), "multiple of 8"));
  made.card.work();
  made.channel->quiet();
  CHECK(made.faults() == "");
}

TEST_CASE("a proxy thread posts to a card for a CPU thread and for a GPU") {
  for (const auto gpu : {std::optional<u32>{}, std::optional<u32>{0}}) {
    Ends ends;
    DeviceBytes on_gpu{64_KiB};
    const auto sent = on_gpu.fill(3);
    auto pair = ends.pair();
    pair.local = reinterpret_cast<u64>(on_gpu.pointer());
    pair.local_key = ends.card.add_region({static_cast<std::byte*>(on_gpu.pointer()), on_gpu.size()});
    PutRegion local{all(), on_gpu.pointer(), on_gpu.size()}, remote{all(), ends.handle(), 0};
    const AtWork working{ends.card};
    OpenChannel channel{
        all(), local, remote, {.gpu = gpu, .transport = Transport::proxy, .timeout = Seconds{20}, .pair = pair}};
    CHECK(channel.transport() == "proxy (network card): the region is behind a network card");
    if (gpu) {
      channel.run_on_gpu(std::vector{PostStep{StepKind::put_signal, {Verb::put, 0, 64, 5000, 9}, word_at},
                                     PostStep{StepKind::quiet, {}, 0}},
                         32, nullptr);
      channel.finish_on_gpu();
    } else {
      channel.put_signal(64, 0, 5000, word_at, 9);
      channel.quiet();
    }
    CHECK(std::memcmp(ends.there.data() + 64, sent.data(), 5000) == 0);
    CHECK(ends.word(word_at) == 9);
  }
}

TEST_CASE("an error of the card is that of a channel whose proxy posts") {
  Linked made{{.transport = Transport::proxy, .timeout = Seconds{20}}};
  made.card.cut(0);
  const AtWork working{made.card};
  made.channel->put(0, 0, 64);
  CHECK(says(error_of([&] { made.channel->quiet(); }), "element 0 of queue 81: transport retry error"));
}

TEST_CASE("a kernel of a GPU builds elements in pinned memory and in its own, and the card executes them") {
  for (const bool own : {false, true}) {
    CAPTURE(own);
    const CurrentContext current{all().driver(), all().gpu(0).context()};
    constexpr u64 send_bytes = blocks * 64, all_bytes = 2 * send_bytes + 192;
    const DeviceBytes device{own ? all_bytes : 64};
    PinnedBlock pinned = all().take_pinned(all_bytes);
    auto* queues = own ? static_cast<std::byte*>(device.pointer()) : pinned.memory.data();
    Ends ends;
    MockCard card;  // the fake GPU's memory is memory of this process
    MockCard::Pair told;
    told.number = number;
    told.send = {queues, send_bytes};
    told.send_record = reinterpret_cast<u32*>(queues + 2 * send_bytes);
    told.doorbell = reinterpret_cast<u64*>(queues + 2 * send_bytes + 128);
    told.completions =
        card.add_completions({queues + send_bytes, send_bytes}, *reinterpret_cast<u32*>(queues + 2 * send_bytes + 64));
    (void)card.add_pair(told);
    const DeviceBytes on_gpu{64_KiB};
    const auto sent = on_gpu.fill(6);
    auto pair = ends.pair();
    pair.send = queues;
    pair.completions = queues + send_bytes;
    pair.send_record = queues + 2 * send_bytes;
    pair.completions_record = queues + 2 * send_bytes + 64;
    pair.doorbell = queues + 2 * send_bytes + 128;
    pair.local = reinterpret_cast<u64>(on_gpu.pointer());
    pair.local_key = card.add_region({static_cast<std::byte*>(on_gpu.pointer()), on_gpu.size()});
    const u32 remote_key = card.add_region({ends.there.data(), ends.there.size()});
    pair.old_value_key =
        card.add_region({reinterpret_cast<std::byte*>(&ends.queues.old_value), sizeof ends.queues.old_value});
    const PutRegion registered{all(), ends.there.data(), ends.there.size()};
    PutRegion local{all(), on_gpu.pointer(), on_gpu.size()},
        remote{all(), registered.card_handle(reinterpret_cast<u64>(ends.there.data()), remote_key), 0};
    {
      const AtWork working{card};
      OpenChannel channel{all(), local, remote, {.gpu = 0, .timeout = Seconds{20}, .pair = pair}};
      CHECK(channel.transport() == "network card (queue pair 81)");
      std::vector<PostStep> steps;
      for (u64 i = 0; i < 40; ++i)
        steps.push_back({StepKind::put_signal, {Verb::put, 100 * i, 100 * i + 64, 100, i + 1}, word_at});
      steps.push_back({StepKind::operation, {Verb::add, 0, word_at + 8, 0, 5}, 0});
      steps.push_back({StepKind::operation, {Verb::get, 32'000, 64, 4000, 0}, 0});
      steps.push_back({StepKind::quiet, {}, 0});
      for (u64 launch = 0; launch < 2; ++launch) {  // the second kernel finds what the first one left
        channel.run_on_gpu(steps, 32, nullptr);
        channel.finish_on_gpu();
      }
    }
    CHECK(std::memcmp(ends.there.data() + 64, sent.data(), 4000) == 0);
    CHECK(ends.word(word_at) == 40);
    CHECK(ends.word(word_at + 8) == 10);
    CHECK(std::memcmp(on_gpu.read().data() + 32'000, sent.data(), 4000) == 0);
    for (const auto& fault : card.faults) FAIL_CHECK(fault);
    all().give_back(std::move(pinned));
  }
}

TEST_CASE("queue pairs that no channel can use are refused, with what is wrong") {
  Ends ends;
  PutRegion local{all(), ends.here.data(), ends.here.size()}, remote{all(), ends.handle(), 0},
      near{all(), ends.there.data(), ends.there.size()};
  const auto told = [&](PutRegion& to, const ChannelOptions& options) {
    return error_of([&] { OpenChannel{all(), local, to, options}; });
  };
  const auto with = [&](auto change, std::optional<u32> gpu = {}) {
    auto pair = ends.pair();
    change(pair);
    return told(remote, {.gpu = gpu, .pair = pair});
  };
  CHECK(says(told(remote, {}), "needs a queue pair"));
  CHECK(says(told(remote, {.transport = Transport::proxy}), "needs a queue pair"));
  CHECK(says(told(remote, {.transport = Transport::verbs}), "needs a queue pair"));
  CHECK(says(told(remote, {.transport = Transport::kernel, .pair = ends.pair()}), "use transport verbs or proxy"));
  CHECK(says(told(remote, {.transport = Transport::memory, .pair = ends.pair()}), "behind a network card"));
  CHECK(says(told(near, {.transport = Transport::verbs, .pair = ends.pair()}), "is not behind a network card"));
  CHECK(says(with([](QueuePair& pair) { pair.send_bytes = 192; }), "a send queue must have a power of two"));
  CHECK(says(with([](QueuePair& pair) { pair.completions_bytes = 512; }), "may lose completions"));
  CHECK(says(with([](QueuePair& pair) { pair.number = 1 << 24; }), "24 bits"));
  CHECK(says(with([](QueuePair& pair) { pair.doorbell = nullptr; }), "the doorbell of the queue pair is NULL"));
  CHECK(says(with([](QueuePair&) {}, 0), "GPU 0 does not reach the send queue in pageable memory"));
  const DeviceBytes on_gpu{1024};
  CHECK(says(with([&](QueuePair& pair) { pair.send_record = static_cast<std::byte*>(on_gpu.pointer()); }),
             "a CPU thread does not reach the record of the send queue in memory of GPU"));
  const DeviceBytes elsewhere{1024, 1};
  CHECK(says(with([&](QueuePair& pair) { pair.send = static_cast<std::byte*>(elsewhere.pointer()); }, 0),
             "GPU 0 does not reach the send queue in memory of GPU"));
  CHECK(says(error_of([&] { (void)near.card_handle(4, 1); }), "multiple of 8"));
  for (const char* text : {"card 1 2", "card 0x10 2 64", "card 16 key 64"})
    CHECK(says(error_of([&] { PutRegion{all(), std::string{text}, 0}; }), "no handle"));
}
