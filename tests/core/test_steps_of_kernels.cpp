// Device code as in test_kernels.cpp: kernels that touch pages, wait, take arguments, set words and add to words.
#include <algorithm>
#include <string>
#include <vector>

#include "kernel_testing.hpp"

namespace emulated {

#include "atomics.inc"
#include "calls.inc"
#include "flags.inc"
#include "gate.inc"
#include "managed.inc"

}  // namespace emulated

using namespace emulated;

TEST_CASE("the touch kernels touch one byte of every page and nothing else") {
  constexpr u64 page = 4096;
  for (const auto& shape : shapes)
    for (const u64 bytes : {u64{1}, page, page + 8, 17 * page, 1000 * page - 8}) {
      const u64 pages = (bytes + page - 1) / page;
      Memory memory{pages * page};
      memory.fill_with_pattern(3);
      auto* start = reinterpret_cast<unsigned char*>(memory.data());
      u64 expected = 0, sum = 0;
      for (u64 i = 0; i < pages; ++i) expected += start[i * page];
      run(shape, [&] { linkscope_touch_read(start, bytes, page, &sum); });
      CHECK(sum == expected);
      CHECK(memory.holds_pattern(3));
      std::vector<unsigned char> kept(start, start + pages * page);
      run(shape, [&] { linkscope_touch_write(memory.data(), bytes, page); });
      for (u64 i = 0; i < pages; ++i) kept[i * page] = 0;
      CHECK(std::equal(kept.begin(), kept.end(), start));
      CHECK(memory.guards_intact());
    }
}

TEST_CASE("the gate opens when its word is written, and reports when it times out") {
  volatile unsigned word = 0;
  unsigned timed_out = 0, clock_reads = 0;
  on_clock_read = [&] { word = ++clock_reads > 5; };
  run({1, 1}, [&] { linkscope_gate(&word, 100'000, &timed_out); });
  CHECK((timed_out == 0 && clock_reads == 6));
  word = 0;
  clock_reads = 0;
  on_clock_read = [&] { ++clock_reads; };
  run({1, 1}, [&] { linkscope_gate(&word, 10'000, &timed_out); });
  CHECK((timed_out == 1 && word == 0));
  CHECK(clock_reads > 100);  // each clock read is 100 ns
  on_clock_read = {};
}

TEST_CASE("the take kernels have as many bytes of arguments as their names state, and access no memory") {
  CHECK(sizeof(Arguments<8>) == 8);
  CHECK(sizeof(Arguments<256>) == 256);
  CHECK(sizeof(Arguments<1024>) == 1024);
  CHECK(sizeof(Arguments<4096>) == 4096);
  run({1, 1}, [] {
    linkscope_take_8({});
    linkscope_take_256({});
    linkscope_take_1024({});
    linkscope_take_4096({});
  });
  CHECK(accesses.empty());
}

namespace {

/// The other side of a ping-pong: answers a value with the same value after `polls` polls of the kernel.
struct Other {
  const Memory& ping;
  const Memory& pong;
  unsigned polls;
  std::vector<u64> seen{};
  unsigned waited = 0;

  void poll() {
    const u64 value = ping.words()[0];
    if (seen.empty() ? value == 0 : value == seen.back()) return;
    if (++waited < polls) return;
    waited = 0;
    seen.push_back(value);
    pong.words()[0] = value;
  }
};

}  // namespace

TEST_CASE("the flag kernel sets its word, waits for the other word, and continues with the next values") {
  for (const unsigned polls : {1u, 3u, 1000u}) {
    const Memory ping{8}, pong{8}, gave_up{8};
    ping.words()[0] = pong.words()[0] = gave_up.words()[0] = 0;
    Other other{ping, pong, polls};
    between_polls = [&] { other.poll(); };
    run({1, 1}, [&] { linkscope_flags(ping.words(), 5, 2, pong.words(), 5, 2, 4, 0, ~u64{0}, gave_up.words()); });
    between_polls = nullptr;
    CHECK(other.seen == std::vector<u64>{5, 7, 9, 11});
    CHECK(gave_up.words()[0] == 0);
    CHECK((ping.guards_intact() && pong.guards_intact()));
  }
}

TEST_CASE("a flag kernel that waits first answers each value once, after the value has arrived") {
  const Memory ping{8}, pong{8}, gave_up{8};
  ping.words()[0] = pong.words()[0] = gave_up.words()[0] = 0;
  u64 sent = 0;
  bool early = false;
  between_polls = [&] {
    early = early || pong.words()[0] > sent;
    if (pong.words()[0] == sent && sent < 3) ping.words()[0] = ++sent;
  };
  run({1, 1}, [&] { linkscope_flags(pong.words(), 1, 1, ping.words(), 1, 1, 3, 1, ~u64{0}, gave_up.words()); });
  between_polls = nullptr;
  CHECK_FALSE(early);
  CHECK(pong.words()[0] == 3);
  CHECK(gave_up.words()[0] == 0);
}

TEST_CASE("the flag kernel gives up after its time-out and reports the value that it waited for") {
  const Memory ping{8}, pong{8}, gave_up{8};
  for (const unsigned waits_first : {0u, 1u}) {
    ping.words()[0] = gave_up.words()[0] = 0;
    pong.words()[0] = 12;  // enough for two iterations
    unsigned polls = 0;
    between_polls = [&] { ++polls; };
    run({1, 1},
        [&] { linkscope_flags(ping.words(), 1, 1, pong.words(), 11, 1, 9, waits_first, 1000, gave_up.words()); });
    between_polls = nullptr;
    CHECK(gave_up.words()[0] == 13);
    CHECK(ping.words()[0] == (waits_first ? 2 : 3));
    CHECK(polls > 1000);  // the kernel reads the clock (100 ns per read) only once in many polls
  }
}

TEST_CASE("the add kernel makes every addition once, to one word each or all to one word, in the requested scope") {
  for (const auto& [blocks, threads] : shapes)
    for (const unsigned system : {0u, 1u})
      for (const u64 additions : {u64{1}, u64{3}, u64{1000}, u64{125'003}}) {
        const Memory each{additions * 8}, one{8};
        for (u64 i = 0; i < additions; ++i) each.words()[i] = i;
        one.words()[0] = 7;
        scopes.clear();
        run({blocks, threads}, [&] { linkscope_add(each.words(), additions, ~u64{0}, system); });
        run({blocks, threads}, [&] { linkscope_add(one.words(), additions, 0, system); });
        bool right = one.words()[0] == 7 + additions;
        for (u64 i = 0; i < additions; ++i) right = right && each.words()[i] == i + 1;
        CHECK(right);
        CHECK((each.guards_intact() && one.guards_intact()));
        CHECK(std::count(scopes.begin(), scopes.end(), system ? "sys" : "gpu") ==
              static_cast<std::ptrdiff_t>(2 * additions));
        CHECK(scopes.size() == 2 * additions);
      }
}

TEST_CASE("dependent additions are made by one thread, to one word") {
  const Memory word{8};
  for (const unsigned system : {0u, 1u}) {
    word.words()[0] = 40;
    scopes.clear();
    run({1, 1}, [&] { linkscope_add_chain(word.words(), 500, system); });
    CHECK(word.words()[0] == 540);
    CHECK(scopes == std::vector<std::string>(500, system ? "sys" : "gpu"));
    CHECK(word.guards_intact());
  }
}
