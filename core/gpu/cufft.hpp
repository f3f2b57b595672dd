// cuFFT, found at run time: Fourier transforms on a stream.
#pragma once
#include <string>

#include "base/units.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

/// A plan of the library for one context: `batch` forward transforms of `points` complex numbers each, one after the
/// other in memory.
class Cufft {
 public:
  /// Why the library cannot be used; "" if it can. It is looked for once.
  [[nodiscard]] static const std::string& why_not();
  /// `wide`: numbers of 8 B. For the current context. Throws Error{failed} if the library is not there, or refuses.
  Cufft(int points, int batch, bool wide);
  ~Cufft();
  Cufft(const Cufft&) = delete;
  Cufft& operator=(const Cufft&) = delete;

  /// Queues the transforms of `from` to `to`. The plan's context is current.
  void queue(CUstream, CUdeviceptr from, CUdeviceptr to) const;

 private:
  int plan_ = 0;
  bool wide_;
};

}  // namespace linkscope
