// Pages of a mapped file that the driver has pinned, so that copy engines read them where the page cache has them.
#pragma once
#include "gpu/driver.hpp"
#include "host/mapped_range.hpp"

namespace linkscope {

/// Pins the pages of a range while it lives, for reading. Use it in the context of the GPU that reads.
class PinnedRange {
 public:
  /// Throws Error{unsupported} if the driver refuses, whatever it says: whether a GPU is lost, the next call tells.
  PinnedRange(const Driver&, MappedRange&);
  /// Pages that the driver still has stay mapped: it would take other memory at their addresses for them.
  ~PinnedRange();
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;
  /// Ends the pinning before the destructor does, and throws Error if the driver refuses.
  void end();

 private:
  const Driver& driver_;
  MappedRange& range_;
  bool has_ended_ = false;
};

}  // namespace linkscope
