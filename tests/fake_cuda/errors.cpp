// The driver's texts for the statuses that the fake returns by itself or by a setting.
#include <map>
#include <utility>

#include "calls.hpp"

namespace fake {
namespace {

#define ERROR(name, text) \
  {                       \
    name, { #name, text } \
  }
const std::map<CUresult, std::pair<const char*, const char*>>& texts() {
  static const auto* table = new std::map<CUresult, std::pair<const char*, const char*>>{
      ERROR(CUDA_SUCCESS, "no error"),
      ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
      ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
      ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
      ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
      ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
      ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
      ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
      ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
      ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
      ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
      ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
      ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
      ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
      ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
      ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"),
      ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
      ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
      ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
      ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
      ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
      ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
      ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
      ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
      ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
      ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
      ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
      ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
      ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
      ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
      ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
      ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
      ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
      ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW"),
      ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
      ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
      ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing stream"),
      ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
  };
  return *table;
}
#undef ERROR

CUresult look_up(CUresult status, const char** answer, const char* std::pair<const char*, const char*>::* which) {
  const auto found = texts().find(status);
  *answer = found == texts().end() ? nullptr : found->second.*which;
  return *answer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult get_error_name(CUresult status, const char** name) {
  return look_up(status, name, &std::pair<const char*, const char*>::first);
}
CUresult get_error_string(CUresult status, const char** text) {
  return look_up(status, text, &std::pair<const char*, const char*>::second);
}

}  // namespace fake
