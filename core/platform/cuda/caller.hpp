// Calls that CPU threads make for a GPU, by the names that programs use, and their prerequisites.
#pragma once
#include <memory>
#include <vector>

#include "platform/cuda/session.hpp"

namespace linkscope {

/// Whether an actor's loop consists of calls for a GPU.
[[nodiscard]] bool makes_calls(const Actor&);
/// Why no CPU thread can make this call here; "" if one can.
[[nodiscard]] std::string why_no_call(const Driver&, const Call&);

struct CallState;

/// A CPU thread that makes the calls of a loop, with its own stream and event, and the graphs that it launches.
class Caller {
 public:
  /// `stream` belongs to the GPU of the calls. Both outlive this object, as do the session and its buffers.
  Caller(const CudaSession&, const Actor&, Device&, const Stream&);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  /// Untimed: prepares that many iterations.
  void ready(u32 iterations);
  /// Untimed: makes the GPU's context that of the calling thread.
  void enter() const;
  /// Timed.
  void make(u64 first_iteration, u32 iterations);
  /// Untimed: waits for queued work and frees what was made.
  void settle();

 private:
  std::unique_ptr<CallState> state_;
};

}  // namespace linkscope
