// Stamps of single iterations: by the clock of its SM for a block, by the host's clock for CPU threads and for streams that
// their host threads drive.
#pragma once
#include <vector>

#include "platform/cuda/session.hpp"
#include "program/latencies.hpp"

namespace linkscope {

/// The times between the ends of the iterations that a kernel stamped, in seconds. The first iteration, which includes the
/// start of the other side, only begins the second.
void add_latencies(const BlockStamps&, u64 iterations, Latencies&);

/// While it lives, the actors of a session stamp their iterations.
class Stamping {
 public:
  /// `latencies`: of each actor, which begin empty.
  Stamping(CudaSession&, std::vector<Latencies>& latencies);
  ~Stamping();
  Stamping(const Stamping&) = delete;
  Stamping& operator=(const Stamping&) = delete;

  /// After a sample: reads what the kernels noted.
  void collect(const std::vector<u32>& batch);

 private:
  CudaSession& session_;
  std::vector<Latencies>& latencies_;
  std::vector<DeviceMemory> noted_;  // by actor; none for those without a kernel of their own
};

/// Calls `iterate` for a number of iterations of an actor's loop on the host, and stamps the end of each.
template <class Iterate>
void stamp_on_host(Latencies& latencies, u64 iterations, Iterate iterate) {
  double last = 0;
  for (u64 i = 0; i < iterations; ++i) {
    iterate(i);
    const double now = host_now();
    if (i > 0) latencies.add(now - last);
    last = now;
  }
}

}  // namespace linkscope
