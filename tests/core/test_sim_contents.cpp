// Contents of memory in words, checked against an array of bytes.
#include <algorithm>

#include "doctest.h"
#include "platform/sim/contents.hpp"
#include "platform/sim/noise.hpp"

using namespace linkscope;
using namespace linkscope::sim;

namespace {

struct Byte {
  u32 generator = 0;
  u64 offset = 0;
  bool operator==(const Byte&) const = default;
};

std::vector<Byte> bytes_of(u64 size, u32 generator) {
  std::vector<Byte> bytes(size);
  for (u64 i = 0; i < size; ++i) bytes[i] = {generator, i};
  return bytes;
}

}  // namespace

TEST_CASE("a copy changes its destination range and nothing else") {
  Contents source{1000, 5}, target{1000, poison_generator};
  target.copy(200, source, 100, 50);
  CHECK(target.check(200, 50, 5, 100).bytes == 0);
  CHECK(target.check(200, 50, 5, 101).bytes == 50);
  CHECK(target.check(199, 51, 5, 99).bytes == 1);
  CHECK(target.check(199, 51, 5, 99).first == 199);
  CHECK(target.check(0, 200, poison_generator, 0).bytes == 0);
}

TEST_CASE("a wrong byte is found, and copies of it are wrong too") {
  Contents source{1000, 5}, target{1000, poison_generator}, further{1000, poison_generator};
  target.copy(0, source, 0, 1000);
  target.corrupt(333);
  CHECK(target.check(0, 1000, 5, 0).bytes == 1);
  CHECK(target.check(0, 1000, 5, 0).first == 333);
  CHECK(target.check(334, 500, 5, 334).bytes == 0);
  further.copy(10, target, 300, 100);
  CHECK(further.check(10, 100, 5, 300).bytes == 1);
  CHECK(further.check(10, 100, 5, 300).first == 43);
  target.copy(0, source, 0, 1000);  // another copy repairs the byte
  CHECK(target.check(0, 1000, 5, 0).bytes == 0);
}

TEST_CASE("random copies agree with an array of bytes") {
  constexpr u64 size = 64;
  Contents words[2] = {{size, 1}, {size, 2}};
  std::vector<Byte> bytes[2] = {bytes_of(size, 1), bytes_of(size, 2)};
  for (u64 step = 0; step < 20000; ++step) {
    const u64 h = hash(11, step);
    const u32 a = h & 1, b = (h >> 1) & 1;
    const u64 from = (h >> 8) % size, to = (h >> 16) % size, most = size - std::max(from, to),
              length = 1 + (h >> 24) % most;
    if (h % 97 == 0) {
      words[b].corrupt(to);
      bytes[b][to] = {corrupt_generator, to};
      continue;
    }
    const auto before = bytes[a];
    if (h % 5 == 0 && a != b) {  // rows with different gaps in source and destination
      const u64 row = 1 + (h >> 48) % 3, in_plane = 1 + (h >> 50) % 3;
      const RowCopy rows{
          row, 2 * in_plane, {row, row + (h >> 52) % 3, in_plane, 12}, {row, row + (h >> 54) % 3, in_plane, 15}};
      const u64 first = (h >> 56) % 16;
      words[b].copy_rows(first, words[a], first / 2, rows);
      for (u64 i = 0; i < rows.count; ++i)
        std::copy_n(before.begin() + static_cast<long>(first / 2 + rows.from.offset_of(i)), row,
                    bytes[b].begin() + static_cast<long>(first + rows.to.offset_of(i)));
    } else {
      words[b].copy(to, words[a], from, length);
      std::copy_n(before.begin() + static_cast<long>(from), length, bytes[b].begin() + static_cast<long>(to));
    }
    const u64 at = (h >> 32) % size, count = 1 + (h >> 40) % (size - at);
    Wrong expected;
    for (u64 i = 0; i < count; ++i)
      if (bytes[b][at + i] != Byte{1, i + 3}) {
        if (expected.bytes++ == 0) expected.first = at + i;
      }
    const auto found = words[b].check(at, count, 1, 3);
    REQUIRE(found.bytes == expected.bytes);
    REQUIRE(found.first == expected.first);
  }
}
