// Calls that are made for a GPU: by what they do, as a program names them, and what they need to be made.
#pragma once
#include <memory>
#include <vector>

#include "platform/cuda/session.hpp"

namespace linkscope {

/// Whether an actor's loop is calls that are made for a GPU.
[[nodiscard]] bool makes_calls(const Actor&);
/// Why no CPU thread here can make this call; "" where one can.
[[nodiscard]] std::string why_no_call(const Driver&, const Call&);

struct CallState;

/// A CPU thread that makes the calls of a loop: with a stream and an event of its own, and the graphs that it launches.
class Caller {
 public:
  /// `stream` is of the GPU that the calls are for. Both outlive it, as do the session and its buffers.
  Caller(const CudaSession&, const Actor&, Device&, const Stream&);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  /// Untimed: all that so many iterations need is there.
  void ready(u32 iterations);
  /// Untimed: the GPU's context is the calling thread's.
  void enter() const;
  /// Timed.
  void make(u64 first_iteration, u32 iterations);
  /// Untimed: what was queued has ended, and what was made is given back.
  void settle();

 private:
  std::unique_ptr<CallState> state_;
};

}  // namespace linkscope
