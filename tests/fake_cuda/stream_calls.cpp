// The driver's calls for streams and events.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

#include "calls.hpp"
#include "captures.hpp"
#include "faults.hpp"
#include "leaks.hpp"
#include "memory.hpp"
#include "patience.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace fake {
namespace {

Live<CUevent_st>& events() {
  static auto* live = new Live<CUevent_st>;
  return *live;
}

std::shared_ptr<CUevent_st> event_of(CUevent handle) {
  auto event = events().find(handle);
  if (!event || !is_context(event->context)) note_misuse("an event that has ended, or whose context has");
  return event;
}

long long monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Writes the time of an event, so that a test can compute what the worker should report.
void log_stamp(unsigned long long event, long long ns) {
  if (settings().stamps.empty()) return;
  static std::mutex one_at_a_time;
  const std::lock_guard held{one_at_a_time};
  std::ofstream{settings().stamps, std::ios::app} << event << ' ' << ns << '\n';
}

bool satisfied(unsigned now, unsigned value, unsigned how) {
  switch (how) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<int>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return ~(now | value) != 0;
  }
}

}  // namespace

void count_events(LeakCounts& counts) { counts["events"] += events().size(); }

std::size_t events_of(CUcontext context) {
  std::size_t number = 0;
  events().each([&](CUevent_st& event) { number += event.context == context; });
  return number;
}

constexpr int highest_priority = -5;

CUresult ctx_get_stream_priority_range(int* lowest, int* highest) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  *lowest = 0;
  *highest = highest_priority;
  return CUDA_SUCCESS;
}

/// Streams of all priorities run alike. A priority that a GPU would clamp is a mistake of the caller.
CUresult stream_create_with_priority(CUstream* stream, unsigned flags, int priority) {
  return priority < highest_priority || priority > 0 ? CUDA_ERROR_INVALID_VALUE : stream_create(stream, flags);
}

CUresult stream_create(CUstream* stream, unsigned flags) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  auto made = make_stream(current(), flags);
  *stream = made.get();
  streams().add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult stream_destroy(CUstream handle) {
  const auto stream = handle ? stream_of(handle) : nullptr;
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  streams().remove(handle);
  stream->close();
  return CUDA_SUCCESS;
}

CUresult stream_synchronize(CUstream handle) {
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->captured()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream->wait();
  return lost();
}

CUresult stream_get_ctx(CUstream handle, CUcontext* context) {
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  *context = stream->context;
  return CUDA_SUCCESS;
}

CUresult stream_query(CUstream handle) {
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  return stream->idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult stream_wait_event(CUstream handle, CUevent event_handle, unsigned flags) {
  const auto stream = stream_of(handle);
  const auto event = event_of(event_handle);
  if (!stream || !event) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  // The stream waits for the current record. A later record of the same event does not delay it.
  if (const auto record = event->record()) stream->submit([record] { record->done.wait(false); });
  return CUDA_SUCCESS;
}

CUresult stream_wait_value_32(CUstream handle, CUdeviceptr word, cuuint32_t value, unsigned flags) {
  constexpr unsigned how = 3;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~(how | CU_STREAM_WAIT_VALUE_FLUSH)) || word % sizeof value != 0 || !find(word, sizeof value))
    return CUDA_ERROR_INVALID_VALUE;
  stream->submit([=] {
    const std::atomic_ref<unsigned> now{*reinterpret_cast<unsigned*>(word)};
    const Patience patience;
    while (!satisfied(now, value, flags & how) && lost() == CUDA_SUCCESS) patience.pause();
  });
  return CUDA_SUCCESS;
}

CUresult event_create(CUevent* handle, unsigned flags) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags & ~static_cast<unsigned>(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<CUevent_st>();
  event->context = current();
  static std::atomic<unsigned long long> created{0};
  event->number = ++created;
  event->timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *handle = event.get();
  events().add(std::move(event));
  return CUDA_SUCCESS;
}

CUresult event_destroy(CUevent event) {
  if (!event_of(event)) return CUDA_ERROR_INVALID_HANDLE;
  events().remove(event);
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent handle, CUstream stream_handle) {
  const auto event = event_of(handle);
  const auto stream = stream_of(stream_handle);
  if (!event || !stream || event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->captured()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the fake captures no dependencies
  auto record = std::make_shared<CUevent_st::Record>();
  {
    const std::lock_guard lock{event->mutex};
    event->latest = record;
  }
  stream->submit([record, number = event->number] {
    record->ns = monotonic_ns();
    log_stamp(number, record->ns);
    record->done = true;
    record->done.notify_all();
  });
  return CUDA_SUCCESS;
}

CUresult event_query(CUevent handle) {
  if (const CUresult status = unsafe_during_capture(); status != CUDA_SUCCESS) return status;
  const auto event = event_of(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const auto record = event->record();
  return !record || record->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult event_synchronize(CUevent handle) {
  const auto event = event_of(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto record = event->record()) record->done.wait(false);
  return lost();
}

CUresult event_elapsed_time(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  const auto start = event_of(start_handle), end = event_of(end_handle);
  if (!start || !end || !start->timing || !end->timing || start->context != end->context)
    return CUDA_ERROR_INVALID_HANDLE;
  const auto from = start->record(), to = end->record();
  if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->done || !to->done) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(to->ns - from->ns) * 1e-6);
  return CUDA_SUCCESS;
}

}  // namespace fake

/// For the fake libraries: queues work on a stream. `work` is called with `data` and whether its result is damaged, unless
/// a fault drops it.
extern "C" __attribute__((visibility("default"))) int fake_cuda_submit(CUstream handle, void (*work)(void*, bool),
                                                                       void (*drop)(void*), void* data) {
  const auto stream = fake::stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  stream->submit([work, drop, data] {
    const auto delivers = fake::begin_copy();
    if (delivers != fake::Delivers::nothing && fake::lost() == CUDA_SUCCESS)
      work(data, delivers == fake::Delivers::one_wrong_byte);
    fake::end_copy();
    drop(data);
  });
  return CUDA_SUCCESS;
}
