// A copy that a thread of its own makes while the caller goes on.
#pragma once
#include <exception>
#include <thread>

#include "transfer/transfers.hpp"

namespace linkscope {

class AsynchronousCopy {
 public:
  /// Starts after the work that is on the request's stream now; between two GPUs a default stream is that of both. Later
  /// work of that stream does not wait for the copy. Source and destination belong to the copy until it has ended. Throws
  /// Error{usage} for a stream that is captured.
  AsynchronousCopy(Transfers&, const CopyRequest&);
  /// Cancels it if it is under way, and waits for its end.
  ~AsynchronousCopy();
  AsynchronousCopy(const AsynchronousCopy&) = delete;
  AsynchronousCopy& operator=(const AsynchronousCopy&) = delete;

  [[nodiscard]] u64 done_bytes() const { return progress_.done; }
  [[nodiscard]] bool has_ended() const { return ended_; }
  /// Waits until all data is at the destination. Throws Error, or Cancelled if the copy ended early by cancel().
  void wait();
  /// Ends the copy at the next chunk. A copy that is one call of the driver runs to its end.
  void cancel() { progress_.cancelled = true; }

 private:
  void run();
  Transfers& transfers_;
  CopyRequest request_;
  Progress progress_;
  std::optional<CopyLane> lane_;  // of the request's stream
  std::unique_ptr<Stream> stream_;
  std::atomic<bool> ended_{false};
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace linkscope
