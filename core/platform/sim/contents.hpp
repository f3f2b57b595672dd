// The contents of memory as ranges, each with a generator of bytes and an offset. A copy of a GiB then costs as much as
// one of 8 B, and so does its verification.
#pragma once
#include <vector>

#include "base/units.hpp"
#include "program/program.hpp"

namespace linkscope::sim {

/// Bytes of a generator: byte k of a range is byte source_offset + k of generator `generator`.
struct Range {
  u64 begin = 0, end = 0;
  u32 generator = 0;
  u64 source_offset = 0;
};

inline constexpr u32 poison_generator = 0;         // initial content of destinations
inline constexpr u32 corrupt_generator = ~u32{0};  // bytes that nobody wrote

struct Wrong {
  u64 bytes = 0, first = 0;
};

class Contents {
 public:
  Contents(u64 bytes, u32 generator) : ranges_{{0, bytes, generator, 0}} {}

  /// [to, to + bytes) here becomes [from, from + bytes) of `source`.
  void copy(u64 to, const Contents& source, u64 from, u64 bytes);
  /// The same for rows that lie apart; the memory between them stays.
  void copy_rows(u64 to, const Contents& source, u64 from, const RowCopy& rows);
  /// Makes one byte wrong.
  void corrupt(u64 at);
  /// The number of bytes of [begin, begin + bytes) that differ from the generator's bytes from source_offset.
  [[nodiscard]] Wrong check(u64 begin, u64 bytes, u32 generator, u64 source_offset) const;

 private:
  std::vector<Range> ranges_;  // in order, without gaps
  std::size_t next_ = 0;       // the range after the last write: batches write slice by slice

  void add_part(std::vector<Range>& into, u64 begin, u64 end, u64 as_begin) const;
  [[nodiscard]] std::size_t index_of(u64 at) const;
  void replace(u64 begin, u64 end, const std::vector<Range>& with);
};

}  // namespace linkscope::sim
