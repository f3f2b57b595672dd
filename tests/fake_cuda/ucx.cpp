// A fake UCX, as a process that loads it sees it: each message is done when it is started, and carries no bytes. Like UCX
// it looks at the context of the thread that makes it, and a test asks with fake_ucx_* what it found.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "library.hpp"

namespace {

std::atomic<unsigned long long> made{0}, made_with_gpu{0}, freed_before_end{0};

/// A function of the driver that the program has loaded.
template <class Function>
Function driver_call(const char* name) {
  return reinterpret_cast<Function>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name));
}

CUresult device_of_current(CUdevice* device) {
  using Find = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void *current = nullptr, *of_current = nullptr;
  const auto find = driver_call<Find>("cuGetProcAddress_v2");
  find("cuCtxGetCurrent", &current, 4000, 0, nullptr);
  find("cuCtxGetDevice", &of_current, 2000, 0, nullptr);
  CUcontext context = nullptr;
  reinterpret_cast<CUresult (*)(CUcontext*)>(current)(&context);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  return reinterpret_cast<CUresult (*)(CUdevice*)>(of_current)(device);
}

}  // namespace

FAKE_EXPORT unsigned long long fake_ucx_made() { return made; }
/// How often the context of a GPU was current then.
FAKE_EXPORT unsigned long long fake_ucx_made_with_gpu() { return made_with_gpu; }
/// How often GPU memory had been freed when a worker ended, after fake_cuda_fail(nullptr, ...) began to count.
FAKE_EXPORT unsigned long long fake_ucx_freed_before_end() { return freed_before_end; }

FAKE_EXPORT void ucp_get_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = 1;
  *minor = 22;
  *release = 0;
}
FAKE_EXPORT int ucp_config_read(const char*, const char*, void** config) {
  *config = nullptr;
  return 0;
}
FAKE_EXPORT void ucp_config_release(void*) {}
FAKE_EXPORT int ucp_init_version(unsigned, unsigned, const void*, const void*, void** context) {
  static int one;
  ++made;
  CUdevice device = -1;
  if (device_of_current(&device) == CUDA_SUCCESS) ++made_with_gpu;
  *context = &one;
  return 0;
}
FAKE_EXPORT void ucp_cleanup(void*) {}
FAKE_EXPORT int ucp_context_query(void*, void* facts) {
  constexpr std::size_t memory_types = 24;  // the place of this field
  constexpr unsigned long long host_and_cuda = 3;
  std::memcpy(static_cast<char*>(facts) + memory_types, &host_and_cuda, sizeof host_and_cuda);
  return 0;
}
FAKE_EXPORT int ucp_worker_create(void*, const void*, void** worker) {
  static int one;
  *worker = &one;
  return 0;
}
FAKE_EXPORT void ucp_worker_destroy(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds{20});  // another process is faster
  if (const auto calls = driver_call<unsigned long long (*)(const char*)>("fake_cuda_calls"))
    freed_before_end += calls("cuMemFree");
}
FAKE_EXPORT int ucp_worker_get_address(void*, void** address, std::size_t* bytes) {
  static char own[] = "here";
  *address = own;
  *bytes = sizeof own;
  return 0;
}
FAKE_EXPORT void ucp_worker_release_address(void*, void*) {}
FAKE_EXPORT int ucp_ep_create(void*, const void*, void** endpoint) {
  static int one;
  *endpoint = &one;
  return 0;
}
FAKE_EXPORT void* ucp_tag_send_nbx(void*, const void*, std::size_t, unsigned long long, const void*) { return nullptr; }
FAKE_EXPORT void* ucp_tag_recv_nbx(void*, void*, std::size_t, unsigned long long, unsigned long long, const void*) {
  return nullptr;
}
FAKE_EXPORT unsigned ucp_worker_progress(void*) { return 0; }
FAKE_EXPORT int ucp_request_check_status(void*) { return 0; }
FAKE_EXPORT void ucp_request_free(void*) {}
FAKE_EXPORT const char* ucs_status_string(int) { return "no error"; }
