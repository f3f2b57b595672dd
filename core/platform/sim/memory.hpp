// All regions of a session, what every copy should have written, and whether it is there.
#pragma once
#include <optional>
#include <vector>

#include "platform/sim/contents.hpp"
#include "platform/sim/lanes.hpp"
#include "program/platform.hpp"

namespace linkscope::sim {

class Memory {
 public:
  Memory(const Program&, const Lanes&);

  /// Iteration `iteration` of a copy has arrived.
  void copied(const Op&, u64 iteration);
  /// From now on one byte of the first slice that the first copy writes is wrong; `where` picks it.
  void corrupt_first_copy(u64 where) { corrupt_at_ = where; }
  /// Compares every slice that was written with what its source held.
  [[nodiscard]] Verdict verify() const;

 private:
  struct Track {  // one copy of the program: what it has written
    bool checkable = false;  // from a region with a pattern
    const Move* move = nullptr;
    std::vector<u64> from;  // by slice of the destination: source offset + 1 of the last write; 0: none yet
  };
  std::vector<Contents> regions_;
  std::vector<Track> tracks_;
  u64 unmoved_ = 0;  // bytes that were read or written without being copied
  bool unmoved_wrong_ = false;
  std::optional<u64> corrupt_at_;
};

}  // namespace linkscope::sim
