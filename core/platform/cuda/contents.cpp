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

/// What `look` finds in ranges of memory, joined.
template <class Look>
Mismatch joined(u64 bytes, u64 grain, Look look) {
  std::mutex guard;
  Mismatch all;
  parallel_ranges(bytes, grain, [&](u64 begin, u64 end) {
    const Mismatch mine = look(begin, end);
    const std::scoped_lock lock{guard};
    all.wrong += mine.wrong;
    all.first = std::min(all.first, mine.first);
  });
  return all;
}

/// Counts the elements in [begin, end) that are not right.
template <class IsRight>
Mismatch count_wrong(u64 begin, u64 end, IsRight is_right) {
  Mismatch found;
  for (u64 i = begin; i < end; ++i)
    if (!is_right(i)) {
      found.first = std::min(found.first, i);
      ++found.wrong;
    }
  return found;
}

/// Counts the words that differ from expected(index).
template <class Expected>
Mismatch mismatch(const std::byte* start, u64 bytes, Expected expected) {
  const auto* words = reinterpret_cast<const u64*>(start);
  return joined(bytes, sizeof(u64), [&](u64 begin, u64 end) {
    return count_wrong(begin / 8, end / 8, [&](u64 i) { return words[i] == expected(i); });
  });
}

}  // namespace

Mismatch check_pattern(const std::byte* start, u64 bytes, u64 seed, u64 pattern_offset) {
  return mismatch(start, bytes,
                  [seed, first = pattern_offset / 8](u64 i) { return linkscope_pattern_word(seed, first + i); });
}

Mismatch difference(std::span<const std::byte> found, std::span<const std::byte> expected) {
  return joined(found.size(), 64, [&](u64 begin, u64 end) -> Mismatch {
    if (std::memcmp(found.data() + begin, expected.data() + begin, end - begin) == 0) return {};
    return count_wrong(begin, end, [&](u64 i) { return found[i] == expected[i]; });
  });
}

Mismatch check_rows(const std::byte* start, u64 bytes, const linkscope_row_copy& copy) {
  return mismatch(start, bytes, [&copy](u64 i) { return linkscope_row_word(copy, 8 * i); });
}

}  // namespace linkscope
