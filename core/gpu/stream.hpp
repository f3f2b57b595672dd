// Streams and events. Each belongs to the context that is current when it is created.
#pragma once
#include "gpu/driver.hpp"

namespace linkscope {

/// `urgent`: the highest that the GPU has. Blocks of its kernels start before those that other streams have in waiting.
enum class Priority { usual, urgent };

/// Why streams cannot be urgent; "" if they can.
[[nodiscard]] std::string why_no_urgent_stream(const Driver&);

/// Owns a non-blocking stream, so that the legacy default stream orders nothing.
class Stream {
 public:
  explicit Stream(const Driver&, Priority = Priority::usual);
  /// Owns a stream that was made in another way.
  Stream(const Driver& driver, CUstream made) : driver_{driver}, stream_{made} {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] CUstream get() const { return stream_; }
  void synchronize() const;

 private:
  const Driver& driver_;
  CUstream stream_ = nullptr;
};

/// Owns an event that records time, or that only orders work.
class Event {
 public:
  explicit Event(const Driver&, unsigned flags = CU_EVENT_DEFAULT);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] CUevent get() const { return event_; }

 private:
  const Driver& driver_;
  CUevent event_ = nullptr;
};

}  // namespace linkscope
