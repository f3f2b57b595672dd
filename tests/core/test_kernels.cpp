// Tests of the device code as C++ on an emulated GPU (emulated_gpu.hpp). The fake driver has kernels of its own, so
// only a GPU would run this code otherwise. This file has the kernels that access and compare bytes: they touch every
// byte once and nothing outside, and leave the bytes that the host expects. test_copy_kernels.cpp has the copies, and
// test_steps_of_kernels.cpp the others.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "base/pattern.hpp"
#include "kernel_testing.hpp"
#include "program/chain.hpp"
#include "program/line_order.hpp"
#include "program/row_order.hpp"
#include "program/steps.hpp"

namespace emulated {

#include "access.inc"
#include "pattern.inc"

}  // namespace emulated

using namespace emulated;

namespace {

u64 sum_of(u64 words, u64 seed, u64 first_index) {
  u64 sum = 0;
  for (u64 i = 0; i < words; ++i) sum += linkscope_pattern_word(seed, first_index + i);
  return sum;
}

}  // namespace

TEST_CASE("the read kernel reads every byte once and returns the sum of all words") {
  for_all([](const Launch& shape, u64 bytes) {
    const Memory from{bytes};
    from.fill_with_pattern(bytes, 5);
    u64 sum = 0, expected = 0;
    run(shape, [&] { linkscope_read(from.data(), bytes, &sum); }, Lanes::lockstep);
    CHECK(sum == sum_of(bytes / 8, bytes, 5));
    CHECK(from.vectors_read_once());
    CHECK((from.guards_intact() && from.holds_pattern(bytes, 5)));
    run(shape, [&] { linkscope_read(from.data(), bytes, &sum); }, Lanes::lockstep);
    run(shape, [&] { linkscope_sum_pattern(bytes / 8, bytes, 5, 2, &expected); }, Lanes::lockstep);
    CHECK(sum == expected);  // as the host compares: bytes that are read twice count twice
  });
}

TEST_CASE("every word contributes to the sum of the read kernel") {
  constexpr u64 bytes = 4096 + 24;
  const Memory from{bytes};
  for (u64 word = 0; word < bytes / 8; ++word) {
    for (u64 i = 0; i < bytes / 8; ++i) from.words()[i] = i == word;
    u64 sum = 0;
    run({2, 32}, [&] { linkscope_read(from.data(), bytes, &sum); }, Lanes::lockstep);
    CAPTURE(word);
    CHECK(sum == 1);
  }
}

TEST_CASE("the write kernel writes every byte once, with the pattern that starts at the given word") {
  for_all([](const Launch& shape, u64 bytes) {
    const Memory to{bytes};
    run(shape, [&] { linkscope_write(to.data(), bytes, 42, 1024); });
    CHECK(to.holds_pattern(42, 1024));
    CHECK(to.vectors_written_once());
    CHECK(to.guards_intact());
  });
}

namespace {

struct Accesses {
  unsigned width;
  u64 stride;
  bool random;
};

constexpr std::array<Accesses, 9> kinds{{{4, 4, false},
                                         {8, 8, false},
                                         {4, 128, false},
                                         {8, 256, false},
                                         {16, 64, false},
                                         {16, 32, false},
                                         {4, 128, true},
                                         {16, 128, true},
                                         {8, 4096, true}}};

/// The access as a program states it.
linkscope::Access stated(const Accesses& kind, u64 bytes) {
  using enum linkscope::Access::Pattern;
  return {{0, 0, bytes, bytes, 1},
          linkscope::Access::Dir::read,
          kind.random                ? random
          : kind.stride > kind.width ? strided
                                     : linear,
          kind.width,
          kind.stride};
}

/// Checks that the launch made `count` accesses of `width` bytes, each to another multiple of the stride. Returns the
/// number of sectors of 32 B.
u64 check_each_once(const Memory& memory, const Accesses& kind, u64 count) {
  std::vector<bool> touched(memory.bytes()), sectors(memory.bytes() / 32 + 1);
  bool right = true;
  for (const auto& access : accesses) {
    const auto offset = static_cast<u64>(access.at - memory.data());
    right =
        right && access.bytes == kind.width && offset % kind.stride == 0 && offset < memory.bytes() && !touched[offset];
    if (!right) break;
    touched[offset] = true;
    for (u64 at = offset / 32; at <= (offset + access.bytes - 1) / 32; ++at) sectors[at] = true;
  }
  CHECK(right);
  CHECK(accesses.size() == count);
  return static_cast<u64>(std::count(sectors.begin(), sectors.end(), true));
}

}  // namespace

TEST_CASE("accesses of any width, linear, strided or random, touch every line once and cause the stated traffic") {
  for (const auto& kind : kinds)
    for (const u64 bytes : {u64{24}, u64{4096}, u64{100'008}})
      for (const Launch& shape : {Launch{1, 32}, Launch{3, 160}, Launch{7, 64}, Launch{256, 32}}) {
        CAPTURE(kind.width);
        CAPTURE(kind.stride);
        CAPTURE(kind.random);
        CAPTURE(bytes);
        const u64 count = linkscope::access_count(stated(kind, bytes)),
                  moved = linkscope::moved_bytes(stated(kind, bytes));
        const Memory from{bytes}, to{bytes};
        from.fill_with_pattern(9, 64);
        u64 sum = 0, expected = 0, result[2] = {0, ~0ull};
        run(
            shape, [&] { linkscope_read_lines(from.data(), count, kind.stride, kind.width, kind.random, &sum); },
            Lanes::lockstep);
        const u64 sectors = check_each_once(from, kind, count);
        CHECK(sectors * 32 == (kind.stride >= 32
                                   ? moved
                                   : (moved + 31) / 32 * 32));  // a contiguous access may use a part of the last sector
        run(
            shape, [&] { linkscope_sum_lines(count, kind.stride, kind.width, 9, 64 * 8, 1, &expected); },
            Lanes::lockstep);
        CHECK(sum == expected);
        CHECK((from.guards_intact() && from.holds_pattern(9, 64)));
        run(shape, [&] { linkscope_write_lines(to.data(), count, kind.stride, kind.width, kind.random, 42, 512); });
        CHECK(check_each_once(to, kind, count) == sectors);
        CHECK(to.guards_intact());
        const auto check = [&] {
          result[0] = 0, result[1] = ~0ull;
          run(shape, [&] {
            linkscope_check_lines(to.words(), bytes / 8, count, kind.stride, kind.width, 42, 512, 0xA5A5A5A5A5A5A5A5ull,
                                  result);
          });
        };
        if (kind.stride <= kind.width) {
          CHECK(to.holds_pattern(42, 64));
          continue;
        }
        check();
        CHECK((result[0] == 0 && result[1] == ~0ull));
        for (const u64 byte : {u64{0}, bytes - 1, kind.width + 0ull}) {  // written bytes and the gap after them
          to.data()[byte] ^= 1;
          check();
          CHECK((result[0] == 1 && result[1] == byte / 8));
          to.data()[byte] ^= 1;
        }
      }
}

TEST_CASE("every 4-byte half of a word in a narrow access pattern contributes to the sum, and no other half") {
  const Memory from{1032};
  for (const u64 stride : {4ull, 128ull})
    for (u64 half = 0; half < 1032 / 4; ++half) {
      for (u64 i = 0; i < 1032 / 4; ++i) reinterpret_cast<unsigned*>(from.data())[i] = i == half;
      u64 sum = 0;
      run(
          {2, 32}, [&] { linkscope_read_lines(from.data(), (1032 - 4) / stride + 1, stride, 4, 0, &sum); },
          Lanes::lockstep);
      CHECK(sum == (half * 4 % stride == 0));
    }
}

TEST_CASE("neighbouring threads access neighbouring lines in strided order, and distant lines in random order") {
  const auto neighbour_fraction = [](bool random) {
    const Memory from{1 << 20};
    u64 sum = 0, count = 0, together = 0;
    run({3, 128}, [&] { linkscope_read_lines(from.data(), (1 << 20) / 128, 128, 4, random, &sum); }, Lanes::lockstep);
    std::map<std::pair<unsigned, unsigned>, std::vector<const char*>> by_thread;
    for (const auto& access : accesses) by_thread[{access.block, access.thread}].push_back(access.at);
    for (const auto& [who, touched] : by_thread) {
      if (who.second % 32 == 0) continue;
      const auto& neighbour = by_thread[{who.first, who.second - 1}];
      for (std::size_t i = 0; i < std::min(touched.size(), neighbour.size()); ++i, ++count)
        together += touched[i] == neighbour[i] + 128;
    }
    return static_cast<double>(together) / static_cast<double>(count);
  };
  CHECK(neighbour_fraction(false) == 1);
  CHECK(neighbour_fraction(true) < 0.01);
}

TEST_CASE("the random order visits every line once, for any number of lines") {
  for (const u64 lines : {1ull, 2ull, 3ull, 31ull, 32ull, 33ull, 1000ull, 65536ull, 65537ull}) {
    CAPTURE(lines);
    const u64 mask = linkscope_line_mask(lines);
    const unsigned half = linkscope_line_half(mask);
    CHECK(mask >= lines - 1);
    CHECK((mask == 0 || mask / 2 < lines - 1));
    std::set<u64> visited;
    for (u64 i = 0; i < lines; ++i) visited.insert(linkscope_line_at(i, lines, mask, half));
    CHECK(visited.size() == lines);
    CHECK(*visited.rbegin() == lines - 1);
  }
}

TEST_CASE("the fill kernel writes every word, and the check kernel counts every wrong word") {
  for (const auto& [blocks, threads] : shapes) {
    const u64 bytes = 1'000'024, words = bytes / 8;
    const Memory memory{bytes};
    u64 result[2] = {0, ~0ull};
    const auto check = [&] {
      result[0] = 0, result[1] = ~0ull;
      run({blocks, threads}, [&] { linkscope_check(memory.words(), words, 7, 3, result); });
    };
    run({blocks, threads}, [&] { linkscope_fill(memory.words(), words, 7, 3); });
    CHECK((memory.holds_pattern(7, 3) && memory.guards_intact()));
    check();
    CHECK((result[0] == 0 && result[1] == ~0ull));
    for (const u64 word : {u64{5}, u64{40'000}, words - 1}) memory.words()[word] ^= 1ull << 63;
    check();
    CHECK((result[0] == 3 && result[1] == 5));
  }
}

TEST_CASE("the row-check kernel checks every word, in rows and between rows") {
  // Three slices of four rows in two planes, from rows with gaps; the last row of a slice ends before the slice does.
  constexpr u64 row = 24, pitch = 40, plane = 96, slice = 256, slices = 3, untouched = 0xA5A5A5A5A5A5A5A5ull;
  const linkscope_row_copy copy{slice, row, 4, {pitch, 2, plane}, {32, 4, ~0ull}, 128, 512, 2, 9, untouched};
  std::map<u64, u64> expected;  // by word
  for (u64 s = 0; s < slices; ++s)
    for (u64 r = 0; r < 4; ++r)
      for (u64 at = 0; at < row; at += 8)
        expected[(s * slice + r / 2 * plane + r % 2 * pitch + at) / 8] =
            linkscope_pattern_word(9, (128 + s % 2 * 512 + r * 32 + at) / 8);
  const Memory memory{slices * slice};
  const u64 words = slices * slice / 8;
  for (u64 i = 0; i < words; ++i) memory.words()[i] = expected.contains(i) ? expected[i] : untouched;
  for (const auto& [blocks, threads] : shapes) {
    u64 result[2] = {0, ~0ull};
    const auto check = [&] {
      result[0] = 0, result[1] = ~0ull;
      run({blocks, threads}, [&] { linkscope_check_rows(memory.words(), words, copy, result); });
    };
    check();
    CHECK((result[0] == 0 && result[1] == ~0ull));
    for (u64 i = 0; i < words; ++i) {
      memory.words()[i] ^= 1;
      check();
      CHECK((result[0] == 1 && result[1] == i));
      memory.words()[i] ^= 1;
    }
  }
}

TEST_CASE("a pointer chase visits every line once, in the order that verification expects") {
  for (const u64 lines : {1ull, 2ull, 4ull, 8192ull})
    for (const Launch& shape : {Launch{1, 32}, Launch{3, 160}, Launch{256, 256}}) {
      CAPTURE(lines);
      const Memory region{lines * linkscope_chain_line};
      run(shape, [&] { linkscope_fill_chain(region.data(), lines); });
      CHECK(region.guards_intact());
      const auto start = reinterpret_cast<u64>(region.data());
      u64 position = start;
      run({1, 1}, [&] { linkscope_chase(&position, lines); });
      CHECK(position == start);
      REQUIRE(accesses.size() == lines);
      std::set<const char*> visited;
      u64 line = 0;
      bool in_order = true;
      for (u64 step = 0; step < lines; ++step, line = linkscope_chain_next(line, lines)) {
        const char* expected = region.data() + line * linkscope_chain_line;
        in_order = in_order && accesses[step].at == expected && line == linkscope_chain_after(step, lines);
        visited.insert(accesses[step].at);
      }
      CHECK(in_order);
      CHECK(visited.size() == lines);
      for (const u64 steps : {1ull, 5ull, 2ull})
        run({1, 1}, [&] { linkscope_chase(&position, steps); });  // each continues the last one
      CHECK(position == start + linkscope_chain_after(8, lines) * linkscope_chain_line);
    }
}

TEST_CASE("a chase on one SM runs only there, for any order of the blocks, and each launch continues the last one") {
  constexpr u64 lines = 64, steps = 7;
  constexpr unsigned sms = 5;
  const Memory region{lines * linkscope_chain_line};
  const auto start = reinterpret_cast<u64>(region.data());
  run({1, 1}, [&] { linkscope_fill_chain(region.data(), lines); });
  for (unsigned sm = 0; sm < sms; ++sm)
    for (unsigned shift = 0; shift < sms; ++shift) {
      sm_of_block.clear();
      for (unsigned block = 0; block < sms; ++block) sm_of_block[block] = (block + shift) % sms;
      u64 position = start, turns = 0;
      for (u64 turn = 0; turn < 3; ++turn) {
        run({sms, 1}, [&] { linkscope_chase_on(&position, steps, sm, &turns, turn); });
        CHECK(turns == turn + 1);
        CHECK(position == start + linkscope_chain_after((turn + 1) * steps, lines) * linkscope_chain_line);
        REQUIRE(accesses.size() == steps);
        for (const auto& access : accesses) CHECK(sm_of_block[access.block] == sm);
      }
    }
  sm_of_block.clear();
}

TEST_CASE(
    "if two blocks run on the SM, the first one chases; if no block does, nothing is accessed and the turn stays") {
  const Memory region{64 * linkscope_chain_line};
  const auto start = reinterpret_cast<u64>(region.data());
  run({1, 1}, [&] { linkscope_fill_chain(region.data(), 64); });
  u64 position = start, turns = 3;
  sm_of_block = {{0, 1}, {1, 2}, {2, 2}, {3, 0}};
  run({4, 1}, [&] { linkscope_chase_on(&position, 5, 2, &turns, 3); });
  CHECK(turns == 4);
  CHECK(accesses.size() == 5);
  CHECK(accesses.front().block == 1);
  const u64 last_position = position;
  u64 clock_reads = 0;
  on_clock_read = [&] { ++clock_reads; };
  for (const u64 turn : {4ull, 5ull}) run({4, 1}, [&] { linkscope_chase_on(&position, 5, 3, &turns, turn); });
  on_clock_read = nullptr;
  CHECK((turns == 4 && position == last_position && accesses.empty()));
  // Each block waited 1 ms for the missing one, at 100 ns per clock read; in the next launch no block waited.
  CHECK(clock_reads >= 4 * 10'000);
  CHECK(clock_reads <= 4 * 10'010 + 8);
  sm_of_block.clear();
}

TEST_CASE("less than 1 % of chase steps stay within 16 lines, so a prefetcher of neighbouring lines gains nothing") {
  CHECK(linkscope_chain_line == 256);  // two cache lines of 128 B, so no load hits the line of the load before
  for (const u64 lines : {8192ull, 262144ull}) {
    u64 near_steps = 0;
    for (u64 line = 0; line < lines; ++line) {
      const auto next = linkscope_chain_next(line, lines), distance = next > line ? next - line : line - next;
      near_steps += distance < 16;
    }
    CHECK(near_steps * 100 < lines);
  }
}
