// What the fake libraries have in common: work on a stream of the fake driver.
#pragma once
#include <cuda.h>
#include <dlfcn.h>

#include <functional>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_library {

using Work = std::function<void(bool damaged)>;

/// Queues work by the driver that the program has loaded. False if the driver refuses.
inline bool submit(CUstream stream, Work work) {
  using Submit = int (*)(CUstream, void (*)(void*, bool), void (*)(void*), void*);
  static const auto queue =
      reinterpret_cast<Submit>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "fake_cuda_submit"));
  const auto run = [](void* data, bool damaged) { (*static_cast<Work*>(data))(damaged); };
  const auto drop = [](void* data) { delete static_cast<Work*>(data); };
  return queue && queue(stream, run, drop, new Work{std::move(work)}) == CUDA_SUCCESS;
}

}  // namespace fake_library
