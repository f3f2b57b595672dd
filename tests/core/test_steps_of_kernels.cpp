// Device code as in test_kernels.cpp: kernels that touch pages, wait, take arguments and add to words.
#include <algorithm>
#include <string>
#include <vector>

#include "kernel_testing.hpp"
#include "program/line_order.hpp"

namespace emulated {

#include "atomics.inc"
#include "calls.inc"
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
      for (const unsigned random : {0u, 1u}) {
        sum = 0;
        run(shape, [&] { linkscope_touch_read(start, bytes, page, random, &sum); });
        CHECK(sum == expected);
      }
      CHECK(memory.holds_pattern(3));
      std::vector<unsigned char> kept(start, start + pages * page);
      for (u64 i = 0; i < pages; ++i) kept[i * page] = 0;
      for (const unsigned random : {1u, 0u}) {
        memory.fill_with_pattern(3);
        run(shape, [&] { linkscope_touch_write(memory.data(), bytes, page, random); });
        CHECK(std::equal(kept.begin(), kept.end(), start));
      }
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
