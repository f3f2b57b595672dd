// Copies in two legs through a few slots of memory: a chunk takes its second leg while the next one takes its first.
#pragma once
#include <memory>
#include <vector>

#include "gpu/stream.hpp"
#include "transfer/arena.hpp"

namespace linkscope {

/// A GPU and its context, on which a leg has a stream of its own.
struct LegPlace {
  u32 gpu = 0;
  CUcontext context = nullptr;
};

class Hop {
 public:
  /// Throws Error if the driver refuses a stream or an event.
  Hop(const Driver&, const LegPlace& first, const LegPlace& second, u32 slots);
  ~Hop();
  Hop(const Hop&) = delete;
  Hop& operator=(const Hop&) = delete;

  [[nodiscard]] const CopyLane& first() const { return first_.lane; }
  [[nodiscard]] const CopyLane& second() const { return second_.lane; }
  /// The memory of the slots, which no queued work uses. There may be fewer than slots of the hop.
  void use(const std::vector<CUdeviceptr>& memory);
  /// Both legs wait for an event.
  void wait_for(CUevent) const;
  /// Whether the next chunk finds a free slot. Throws if the driver reports an error.
  [[nodiscard]] bool has_room() const;
  /// Queues a chunk, at most as long as a slot, behind those in its slot.
  void queue(CUdeviceptr dst, CUdeviceptr src, u64 bytes);
  /// The lane's stream waits for all chunks.
  void join(const CopyLane&) const;
  /// Waits for all chunks. Returns false if the driver cannot.
  [[nodiscard]] bool finish() const;
  /// Whether all chunks that were joined are done. Throws if the driver reports an error.
  [[nodiscard]] bool is_idle() const;

 private:
  struct Leg {
    Leg(const Driver&, const LegPlace&);
    CopyLane lane;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> end;
  };
  struct Step {
    CUdeviceptr memory = 0;
    bool used = false;
    std::unique_ptr<Event> filled, emptied;  // of the first and the second leg
  };
  const Driver& driver_;
  Leg first_, second_;
  std::vector<Step> steps_;
  std::size_t slots_ = 0, next_ = 0;
};

}  // namespace linkscope
