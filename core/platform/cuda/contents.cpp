#include "platform/cuda/contents.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "host/parallel.hpp"

namespace linkscope {

void fill_pattern(std::byte* start, u64 bytes, u64 seed) {
  auto* words = reinterpret_cast<u64*>(start);
  parallel_ranges(bytes, sizeof(u64), [&](u64 begin, u64 end) {
    for (u64 i = begin / 8; i < end / 8; ++i) words[i] = linkscope_pattern_word(seed, i);
  });
}

void fill(std::byte* start, u64 bytes, std::byte with) {
  parallel_ranges(bytes, 64,
                  [&](u64 begin, u64 end) { std::memset(start + begin, static_cast<int>(with), end - begin); });
}

namespace {

/// Counts the words that differ from expected(index).
template <class Expected>
Mismatch mismatch(const std::byte* start, u64 bytes, Expected expected) {
  const auto* words = reinterpret_cast<const u64*>(start);
  std::mutex guard;
  Mismatch all;
  parallel_ranges(bytes, sizeof(u64), [&](u64 begin, u64 end) {
    Mismatch mine;
    for (u64 i = begin / 8; i < end / 8; ++i)
      if (words[i] != expected(i)) {
        mine.first_word = std::min(mine.first_word, i);
        ++mine.wrong_words;
      }
    const std::scoped_lock lock{guard};
    all.wrong_words += mine.wrong_words;
    all.first_word = std::min(all.first_word, mine.first_word);
  });
  return all;
}

}  // namespace

Mismatch check_pattern(const std::byte* start, u64 bytes, u64 seed, u64 pattern_offset) {
  return mismatch(start, bytes,
                  [seed, first = pattern_offset / 8](u64 i) { return linkscope_pattern_word(seed, first + i); });
}

Difference difference(std::span<const std::byte> found, std::span<const std::byte> expected) {
  std::mutex guard;
  Difference all;
  parallel_ranges(found.size(), 64, [&](u64 begin, u64 end) {
    if (std::memcmp(found.data() + begin, expected.data() + begin, end - begin) == 0) return;
    Difference mine;
    for (u64 i = begin; i < end; ++i)
      if (found[i] != expected[i]) {
        mine.first_byte = std::min(mine.first_byte, i);
        ++mine.wrong_bytes;
      }
    const std::scoped_lock lock{guard};
    all.wrong_bytes += mine.wrong_bytes;
    all.first_byte = std::min(all.first_byte, mine.first_byte);
  });
  return all;
}

Mismatch check_rows(const std::byte* start, u64 bytes, const linkscope_row_copy& copy) {
  return mismatch(start, bytes, [&copy](u64 i) { return linkscope_row_word(copy, 8 * i); });
}

}  // namespace linkscope
