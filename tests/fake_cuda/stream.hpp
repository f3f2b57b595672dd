// Streams: queues in first-in, first-out order. Each has its own thread, so queued work is asynchronous to the caller.
#pragma once
#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "context.hpp"

struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
  CUcontext context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<std::mutex> queue;                // held by one kernel at a time of those streams that share it
  std::atomic<unsigned long long> staged_bytes{0};  // queued copies between GPUs that go through the host

  void start();
  /// Queues an operation. Returns the number to wait for: 0 during a capture, when there is nothing to wait for.
  unsigned long long submit(std::function<void()>);
  void wait(unsigned long long number);
  void wait();  // for everything queued so far
  [[nodiscard]] bool idle();
  /// From here to end_capture(), submitted operations are kept and not done. Both return false in the wrong state.
  bool begin_capture();
  bool end_capture(std::vector<std::function<void()>>& operations);
  [[nodiscard]] bool captured();
  std::atomic<bool> capture_is_global{false};
  /// Ends the thread when the queue is empty. Like in the real driver, queued work is still done.
  void close();

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  unsigned long long submitted_ = 0, done_ = 0;
  bool closing_ = false, capturing_ = false;
  std::vector<std::function<void()>> captured_;
};

struct CUevent_st {
  struct Record {
    std::atomic<bool> done{false};
    long long ns = 0;
  };
  CUcontext context = nullptr;
  bool timing = true;
  unsigned long long number = 0;  // in the order of creation, from 1
  std::mutex mutex;
  std::shared_ptr<Record> latest;

  [[nodiscard]] std::shared_ptr<Record> record() {
    const std::lock_guard lock{mutex};
    return latest;
  }
};

namespace fake {

Live<CUstream_st>& streams();
[[nodiscard]] std::shared_ptr<CUstream_st> make_stream(CUcontext, unsigned flags);
/// The stream of a handle. A null handle means the legacy stream of the current context. Returns null if it does not
/// exist.
[[nodiscard]] std::shared_ptr<CUstream_st> stream_of(CUstream);
/// The streams and events of a context that live, without the legacy stream.
[[nodiscard]] std::size_t streams_of(CUcontext);
[[nodiscard]] std::size_t events_of(CUcontext);
/// Waits for all queued work of a context; null: of every context.
void drain(CUcontext);
/// Waits for the streams of a context that synchronize with the legacy stream.
void drain_blocking(CUcontext);

}  // namespace fake
