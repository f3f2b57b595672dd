// The samples of a prepared program: how they are timed, rehearsed and taken.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "platform/cuda/session.hpp"

namespace linkscope {

class Sampling {
 public:
  /// `driver` outlives it.
  explicit Sampling(const Driver& driver);

  /// Why nothing can be queued behind a gate here; "" if no reason is known.
  [[nodiscard]] const std::string& why_no_gate() const { return no_gate_; }
  /// Chooses the timing of a program, before anything of it runs.
  void choose_timing(CudaSession&);
  /// Runs every actor's loop once, over all memory if caches are to be hot: this loads code, allocates staging memory and
  /// gives the time of an iteration. Behind a gate if one will be used, because large copies are too expensive for
  /// another rehearsal.
  void warm_up(CudaSession&);
  /// The samples of this process's actors.
  [[nodiscard]] Trace run(CudaSession&, const Order&);

 private:
  bool rehearse(CudaSession&, const std::vector<u32>& batch, Stamp* stamps);
  bool gated(CudaSession&, const std::vector<u32>& batch, Stamp* stamps);
  bool take_samples(CudaSession&, const Order&, Timing, Trace&);
  Timing timing_of(CudaSession&, const Order&);

  const Driver& driver_;
  std::string no_gate_;
  std::unique_ptr<Gate> gate_;
};

}  // namespace linkscope
