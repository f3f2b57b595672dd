// Where the pages of managed memory are: at home, or with those who touched them.
#pragma once
#include <vector>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

// What NVIDIA's driver keeps one state, and one mapping, for: its big pages, and its blocks of addresses.
inline constexpr u64 managed_region = u64{64} << 10, managed_block = u64{2} << 20;

class Pages {
 public:
  /// All pages that the lanes' steps move, at home. Both outlive it.
  Pages(const Lanes&, const Machine&);

  /// Bytes of the pages of a chunk that are not yet where the step wants them.
  [[nodiscard]] u64 missing(const Op&, u32 iteration, u64 chunk) const;
  /// How many units of so many bytes it wants something of, of which no page has arrived where the step wants them.
  [[nodiscard]] u64 fresh(const Op&, u32 iteration, u64 chunk, u64 unit) const;
  /// Now they are.
  void arrive(const Op&, u32 iteration, u64 chunk);

 private:
  u64 page_bytes_ = 1;
  std::vector<std::vector<bool>> at_home_;  // by region and page

  struct Range {
    std::size_t begin, end;  // pages
  };
  [[nodiscard]] Range pages(const Op&, u32 iteration, u64 chunk) const;
};

}  // namespace linkscope::sim
