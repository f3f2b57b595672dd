#include "stream.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "faults.hpp"
#include "leaks.hpp"
#include "settings.hpp"

void CUstream_st::start() {
  std::thread{[self = shared_from_this()] { self->work(); }}.detach();
}

unsigned long long CUstream_st::submit(std::function<void()> operation) {
  const std::lock_guard lock{mutex_};
  if (capturing_) {
    captured_.push_back(std::move(operation));
    return 0;
  }
  queue_.push_back(std::move(operation));
  changed_.notify_all();
  return ++submitted_;
}

void CUstream_st::wait(unsigned long long number) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return done_ >= number; });
}

void CUstream_st::wait() {
  unsigned long long number = 0;
  {
    const std::lock_guard lock{mutex_};
    number = submitted_;
  }
  wait(number);
}

bool CUstream_st::idle() {
  const std::lock_guard lock{mutex_};
  return done_ == submitted_;
}

bool CUstream_st::begin_capture() {
  const std::lock_guard lock{mutex_};
  return !std::exchange(capturing_, true);
}

bool CUstream_st::end_capture(std::vector<std::function<void()>>& operations) {
  const std::lock_guard lock{mutex_};
  operations = std::exchange(captured_, {});
  return std::exchange(capturing_, false);
}

bool CUstream_st::captured() {
  const std::lock_guard lock{mutex_};
  return capturing_;
}

void CUstream_st::close() {
  const std::lock_guard lock{mutex_};
  closing_ = true;
  changed_.notify_all();
}

void CUstream_st::work() {
  for (;;) {
    std::function<void()> operation;
    {
      std::unique_lock lock{mutex_};
      const bool idle = queue_.empty();
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (idle && fake::settings().late_us > 0) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds{fake::settings().late_us});
        lock.lock();
      }
      if (queue_.empty()) return;
      operation = std::move(queue_.front());
      queue_.pop_front();
    }
    operation();
    const std::lock_guard lock{mutex_};
    ++done_;
    changed_.notify_all();
  }
}

namespace fake {

void count_streams(LeakCounts& counts) {
  streams().each([&](CUstream_st& stream) { counts["streams"] += stream.context->legacy_stream.get() != &stream; });
}

Live<CUstream_st>& streams() {
  static auto* live = new Live<CUstream_st>;
  return *live;
}

namespace {

/// The queue of a new stream: one that the fewest streams have.
std::shared_ptr<std::mutex> queue_of(CUcontext context) {
  const std::lock_guard lock{global_mutex()};
  auto& queues = context->queues;
  while (queues.size() < settings().queues) queues.push_back(std::make_shared<std::mutex>());
  return *std::ranges::min_element(queues, {}, &std::shared_ptr<std::mutex>::use_count);
}

}  // namespace

std::shared_ptr<CUstream_st> make_stream(CUcontext context, unsigned flags) {
  auto stream = std::make_shared<CUstream_st>();
  stream->context = context;
  stream->flags = flags;
  stream->queue = queue_of(context);
  stream->start();
  return stream;
}

std::shared_ptr<CUstream_st> stream_of(CUstream handle) {
  if (handle && handle != CU_STREAM_LEGACY) {
    auto stream = streams().find(handle);
    if (!stream || !is_context(stream->context)) note_misuse("a stream that has ended, or whose context has");
    return stream;
  }
  const std::lock_guard lock{global_mutex()};
  const CUcontext context = current();
  if (!context) return nullptr;
  if (!context->legacy_stream) {
    context->legacy_stream = make_stream(context, CU_STREAM_DEFAULT);
    streams().add(context->legacy_stream);
  }
  return context->legacy_stream;
}

std::size_t streams_of(CUcontext context) {
  std::size_t number = 0;
  streams().each([&](CUstream_st& stream) {
    if (stream.context == context && context->legacy_stream.get() != &stream) ++number;
  });
  return number;
}

void drain(CUcontext context) {
  streams().each([&](CUstream_st& stream) {
    if (!context || stream.context == context) stream.wait();
  });
}

void drain_blocking(CUcontext context) {
  streams().each([&](CUstream_st& stream) {
    if (stream.context == context && (stream.flags & CU_STREAM_NON_BLOCKING) == 0) stream.wait();
  });
}

}  // namespace fake
