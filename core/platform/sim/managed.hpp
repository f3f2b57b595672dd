// Where the pages of managed memory are: at home, or with those who touched them.
#pragma once
#include <vector>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

class Pages {
 public:
  /// All pages that the lanes' steps move, at home. Both outlive it.
  Pages(const Lanes&, const Machine&);

  /// Bytes of the pages of a chunk that are not yet where the step wants them.
  [[nodiscard]] u64 missing(const Op&, u32 iteration, u64 chunk) const;
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
