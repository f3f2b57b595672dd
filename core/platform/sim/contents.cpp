#include "platform/sim/contents.hpp"

#include <algorithm>

namespace linkscope::sim {
namespace {

/// The part of a range in [begin, end).
Range part(const Range& range, u64 begin, u64 end) {
  const u64 first = std::max(range.begin, begin);
  return {first, std::min(range.end, end), range.generator, range.source_offset + (first - range.begin)};
}

}  // namespace

std::size_t Contents::index_of(u64 at) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), at, [](u64 x, const Range& r) { return x < r.begin; });
  return static_cast<std::size_t>(after - ranges_.begin()) - 1;
}

void Contents::copy(u64 to, const Contents& source, u64 from, u64 bytes) {
  const u64 end = from + bytes;
  std::size_t i = source.index_of(from);
  if (source.ranges_[i].end >= end) {  // the common case: one range, written where an equal one lies
    const Range& range = source.ranges_[i];
    const Range moved{to, to + bytes, range.generator, range.source_offset + (from - range.begin)};
    if (next_ >= ranges_.size() || ranges_[next_].begin != moved.begin) next_ = index_of(to);
    Range& old = ranges_[next_];
    if (old.begin == moved.begin && old.end == moved.end) {
      old = moved;
      ++next_;
      return;
    }
    replace(to, to + bytes, {moved});
    return;
  }
  std::vector<Range> moved;
  source.add_part(moved, from, end, to);
  replace(to, to + bytes, moved);
}

/// [begin, end) as it reads from `as_begin`.
void Contents::add_part(std::vector<Range>& into, u64 begin, u64 end, u64 as_begin) const {
  if (begin == end) return;
  for (std::size_t i = index_of(begin); i < ranges_.size() && ranges_[i].begin < end; ++i) {
    Range range = part(ranges_[i], begin, end);
    range.begin = range.begin - begin + as_begin;
    range.end = range.end - begin + as_begin;
    into.push_back(range);
  }
}

void Contents::copy_rows(u64 to, const Contents& source, u64 from, const RowCopy& rows) {
  std::vector<Range> fresh;
  u64 done = to;
  for (u64 row = 0; row < rows.count; ++row) {
    const u64 at = to + rows.to.offset_of(row), begin = from + rows.from.offset_of(row);
    add_part(fresh, done, at, done);
    source.add_part(fresh, begin, begin + rows.bytes, at);
    done = at + rows.bytes;
  }
  replace(to, done, fresh);
}

void Contents::corrupt(u64 at) { replace(at, at + 1, {{at, at + 1, corrupt_generator, at}}); }

void Contents::replace(u64 begin, u64 end, const std::vector<Range>& with) {
  const std::size_t first = index_of(begin), last = index_of(end - 1);
  std::vector<Range> fresh;
  if (ranges_[first].begin < begin) fresh.push_back(part(ranges_[first], 0, begin));
  fresh.insert(fresh.end(), with.begin(), with.end());
  if (ranges_[last].end > end) fresh.push_back(part(ranges_[last], end, ranges_[last].end));
  const auto nth = [&](std::size_t index) { return ranges_.begin() + static_cast<std::ptrdiff_t>(index); };
  const auto at = ranges_.erase(nth(first), nth(last + 1));
  ranges_.insert(at, fresh.begin(), fresh.end());
}

Wrong Contents::check(u64 begin, u64 bytes, u32 generator, u64 source_offset) const {
  Wrong wrong;
  for (std::size_t i = index_of(begin); i < ranges_.size() && ranges_[i].begin < begin + bytes; ++i) {
    const Range range = part(ranges_[i], begin, begin + bytes);
    if (range.generator == generator && range.source_offset == source_offset + (range.begin - begin)) continue;
    if (wrong.bytes == 0) wrong.first = range.begin;
    wrong.bytes += range.end - range.begin;
  }
  return wrong;
}

}  // namespace linkscope::sim
