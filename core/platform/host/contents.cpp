#include "platform/host/contents.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "platform/host/parallel.hpp"
#include "program/pattern.hpp"

namespace linkscope {

void fill_pattern(std::byte* start, u64 bytes, u64 seed) {
  auto* words = reinterpret_cast<u64*>(start);
  parallel_ranges(bytes, sizeof(u64), [&](u64 begin, u64 end) {
    for (u64 i = begin / 8; i < end / 8; ++i) words[i] = linkscope_pattern_word(seed, i);
  });
}

void fill(std::byte* start, u64 bytes, std::byte with) {
  parallel_ranges(bytes, 64, [&](u64 begin, u64 end) { std::memset(start + begin, static_cast<int>(with), end - begin); });
}

Mismatch check_pattern(const std::byte* start, u64 bytes, u64 seed, u64 pattern_offset) {
  const auto* words = reinterpret_cast<const u64*>(start);
  const u64 first_index = pattern_offset / 8;
  std::mutex guard;
  Mismatch all;
  parallel_ranges(bytes, sizeof(u64), [&](u64 begin, u64 end) {
    Mismatch mine;
    for (u64 i = begin / 8; i < end / 8; ++i)
      if (words[i] != linkscope_pattern_word(seed, first_index + i)) {
        mine.first_word = std::min(mine.first_word, i);
        ++mine.wrong_words;
      }
    const std::scoped_lock lock{guard};
    all.wrong_words += mine.wrong_words;
    all.first_word = std::min(all.first_word, mine.first_word);
  });
  return all;
}

u64 count_unpoisoned(const std::byte* start, u64 bytes) {
  return static_cast<u64>(std::count_if(start, start + bytes, [](std::byte b) { return b != poison; }));
}

}  // namespace linkscope
