// Graph captures of the application.
#pragma once
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

/// Whether work of the stream is recorded into a graph in place of being run. False where the driver does not say.
[[nodiscard]] inline bool is_captured(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!driver.cuStreamIsCapturing) return false;
  // The legacy stream returns an error while another stream is captured: a copy on it would then fail, too.
  return driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace linkscope
