// Default streams of the GPUs of a copy between them.
#pragma once
#include <vector>

#include "transfer/methods.hpp"

namespace linkscope {

/// The driver's own copy between two GPUs on a default stream waits for the earlier work of both GPUs, and their later work
/// waits for it. This does the same for a copy that is made in another way. Nothing on a stream that is not a default one.
class BothGpus {
 public:
  /// The lane's stream waits for the default streams of the other GPUs. Throws Error.
  BothGpus(const Resources&, const PlannedCopy&);
  /// The default streams of the other GPUs wait for the lane's stream.
  void join() const;

 private:
  /// A stream waits for what another one has now.
  void wait(const CopyLane& waits, const CopyLane& for_work_of) const;
  const Driver& driver_;
  CopyLane lane_;
  std::vector<CopyLane> others_;
};

}  // namespace linkscope
