// Graph captures of the application.
#pragma once
#include "base/error.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

/// Lets this thread query events and pin memory while another stream of the process is captured. The driver refuses
/// such calls during a capture of mode "global", because they could belong to the captured work; those of this library
/// don't.
class DuringCaptures {
 public:
  explicit DuringCaptures(const Driver& driver) : driver_{driver} {
    changed_ = driver_.cuThreadExchangeStreamCaptureMode &&
               driver_.cuThreadExchangeStreamCaptureMode(&callers_) == CUDA_SUCCESS;
  }
  ~DuringCaptures() {
    if (changed_) driver_.cuThreadExchangeStreamCaptureMode(&callers_);
  }
  DuringCaptures(const DuringCaptures&) = delete;
  DuringCaptures& operator=(const DuringCaptures&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode callers_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_ = false;
};

/// Whether work of the stream is recorded into a graph in place of being run. False where the driver does not say. Throws
/// Error{usage} for a legacy default stream while a stream that waits for it is captured: a copy on it would end the
/// capture with an error.
[[nodiscard]] inline bool is_captured(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!driver.cuStreamIsCapturing) return false;
  const CUresult told = driver.cuStreamIsCapturing(stream, &status);
  if (told == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    throw Error{ErrorKind::usage,
                "the legacy default stream cannot be used while another stream is captured into a graph; name the "
                "captured stream, or one that does not wait for the default stream"};
  return told != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace linkscope
