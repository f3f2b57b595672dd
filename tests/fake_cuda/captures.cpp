// Captures of streams: the work of a captured stream becomes the nodes of a graph (graphs.cpp) and does not run.
#include "captures.hpp"

#include <atomic>

#include "calls.hpp"
#include "stream.hpp"

namespace fake {
namespace {

std::atomic<int> global_captures{0};
thread_local CUstreamCaptureMode mode_of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;

}  // namespace

CUresult unsafe_during_capture() {
  return global_captures > 0 && mode_of_thread != CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                                                 : CUDA_SUCCESS;
}

CUresult stream_begin_capture(CUstream handle, CUstreamCaptureMode mode) {
  if (!handle || handle == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!stream->begin_capture()) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture_is_global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  global_captures += stream->capture_is_global;
  return CUDA_SUCCESS;
}

CUresult stream_end_capture(CUstream handle, CUgraph* graph) {
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<std::function<void()>> work;
  if (!stream->end_capture(work)) return CUDA_ERROR_ILLEGAL_STATE;
  global_captures -= stream->capture_is_global;
  *graph = graph_of(std::move(work));
  return CUDA_SUCCESS;
}

CUresult stream_is_capturing(CUstream handle, CUstreamCaptureStatus* status) {
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if ((!handle || handle == CU_STREAM_LEGACY) && global_captures > 0) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = stream->captured() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult thread_exchange_stream_capture_mode(CUstreamCaptureMode* mode) {
  if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, mode_of_thread);
  return CUDA_SUCCESS;
}

}  // namespace fake
