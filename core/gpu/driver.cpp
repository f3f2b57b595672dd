#include "gpu/driver.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr int oldest = 12000;  // R525: the first driver that runs code of NVRTC 12.x

std::string dotted(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

Driver::Driver() { load(); }

void Driver::load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const std::string reason = dlerror();
    const bool absent = reason.starts_with("libcuda.so.1: ") && reason.find("No such file") != std::string::npos;
    why_not_ = absent ? "there is no CUDA driver here (libcuda.so.1 cannot be loaded)"
                      : "the CUDA driver cannot be loaded: " + reason;
    return;
  }
  const auto get_version = symbol<PFN_cuDriverGetVersion_v2020>(library, "cuDriverGetVersion");
  const auto init = symbol<PFN_cuInit_v2000>(library, "cuInit");
  if (!get_version || !init) {
    why_not_ = "libcuda.so.1 is no CUDA driver: it lacks cuInit or cuDriverGetVersion";
    return;
  }
  get_version(&version_);
  const auto get_address = symbol<PFN_cuGetProcAddress_v12000>(library, "cuGetProcAddress_v2");
  if (version_ < oldest || !get_address) {
    why_not_ = "the CUDA driver is too old: it offers CUDA " + dotted(version_) +
               ", linkscope needs 12.0 (driver 525) or newer; update the driver";
    return;
  }
  const auto fetch = [&]<class Function>(Function& target, const char* name, int version) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult result{};
    if (get_address(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &result) != CUDA_SUCCESS || !found) {
      missing_.emplace_back(name);
      return;
    }
    target = reinterpret_cast<Function>(found);
  };
#define LINKSCOPE_FETCH(name, version) fetch(name, #name, version);
  LINKSCOPE_DRIVER_CORE(LINKSCOPE_FETCH)
#undef LINKSCOPE_FETCH
  if (!missing_.empty()) {
    why_not_ = "the CUDA driver (" + dotted(version_) + ") lacks " + missing_.front() + "; reinstall the driver";
    return;
  }
#define LINKSCOPE_FETCH(name, version) fetch(name, #name, version);
  LINKSCOPE_DRIVER_OPTIONAL(LINKSCOPE_FETCH)
#undef LINKSCOPE_FETCH
  if (const CUresult status = init(0); status != CUDA_SUCCESS) {
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(status, &name);
    cuGetErrorString(status, &text);
    why_not_ = std::string{"the CUDA driver does not start: "} + (name ? name : "unknown error") + " (" +
               (text ? text : std::to_string(status)) + ")";
  }
}

std::string Driver::why_no(const std::string& symbol) const {
  if (!usable()) return why_not_;
  if (std::find(missing_.begin(), missing_.end(), symbol) == missing_.end()) return "";
  return "the CUDA driver (" + dotted(version_) + ") lacks " + symbol;
}

void Driver::check(CUresult status, const char* call) const {
  if (status == CUDA_SUCCESS) return;
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(status, &name);
  cuGetErrorString(status, &text);
  const auto message = std::string{call} + ": " + (name ? name : std::to_string(status).c_str()) +
                       (text ? std::string{" ("} + text + ")" : "");
  switch (status) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      throw Error{ErrorKind::memory, message};
    // These stick to the context or the device, so that nothing after them can be trusted in this process.
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_UNKNOWN:
      throw Error{ErrorKind::lost, message};
    default:
      throw Error{ErrorKind::failed, message};
  }
}

}  // namespace linkscope
