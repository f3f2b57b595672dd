// All regions of a session, what every copy should have written, and whether it did.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "platform/sim/contents.hpp"
#include "platform/sim/lanes.hpp"
#include "platform/sim/ledger.hpp"
#include "program/platform.hpp"

namespace linkscope::sim {

class Memory {
 public:
  /// All arguments outlive it. Throws Error{memory} if the machine has less left.
  Memory(const Program&, const Lanes&, const Machine&, Ledger&);

  /// Iteration `iteration` of a copy has arrived.
  void copied(const Op&, u64 iteration);
  /// From now one byte of the first slice that the first copy writes is wrong; `where` selects it.
  void corrupt_first_copy(u64 where) { corrupt_at_ = where; }
  /// A sample begins. In it copies between GPUs end without delivering: their bytes arrive that many samples later,
  /// with 0 never.
  void begin_sample(std::optional<u64> lies);
  /// Restores the initial content of destinations, so that an old copy proves no new one.
  void start_afresh();
  /// Compares every written slice with the content of its source.
  [[nodiscard]] Verdict verify() const;

 private:
  struct Track {             // the writes of one copy of the program
    bool checkable = false;  // from a region with a pattern
    const Move* move = nullptr;
    const Span* origin = nullptr;  // and its expected pattern
    RowCopy rows;
    std::vector<u64> from;    // by slice of the destination: offset in the origin + 1 of the last write; 0: none yet
    std::vector<bool> there;  // whether that write delivered its bytes
    u64 written_down = 0;     // slices of which every row is recorded; of the others only that they were written
  };
  struct Late {
    const Track* track = nullptr;
    u64 source = 0, target = 0, sample = 0;
  };
  const Program& program_;
  const Machine& machine_;
  Holding holding_;
  std::map<u32, std::vector<bool>> called_;  // by region that calls allocate, and slice: whether it exists
  std::vector<Contents> regions_;
  std::vector<Track> tracks_;
  u64 unmoved_ = 0;  // bytes that were read or written without being copied
  bool unmoved_wrong_ = false;
  std::optional<u64> corrupt_at_;
  u64 sample_ = 0;
  std::optional<u64> lies_;
  std::vector<Late> late_;

  void fill();
  void deliver(const Track&, u64 source, u64 target);
  void check(const Track&, u64 slice, Verdict&) const;
  void call(const Phase&, u64 iteration);
  [[nodiscard]] u64 capacity(const Place&) const;
  [[nodiscard]] bool between_gpus(const Move&) const;
};

}  // namespace linkscope::sim
