// The places of managed pages: at home, or where they were accessed.
#pragma once
#include <vector>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

// Units for which NVIDIA's driver keeps one state and one mapping: its big pages, and its blocks of addresses.
inline constexpr u64 managed_region = u64{64} << 10, managed_block = u64{2} << 20;

class Pages {
 public:
  /// All pages that the lanes' steps move, initially at home. Both arguments outlive it.
  Pages(const Lanes&, const Machine&);

  /// Bytes of a chunk's pages that are not yet where the step needs them.
  [[nodiscard]] u64 missing(const Op&, u32 iteration, u64 chunk) const;
  /// Units of this size that the step needs in part and that have no page yet.
  [[nodiscard]] u64 fresh(const Op&, u32 iteration, u64 chunk, u64 unit) const;
  /// Marks them as arrived.
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
