// Devices and their primary contexts. The fake defines the driver's opaque handle types, so handles need no casts.
#pragma once
#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

struct CUctx_st {
  CUdevice device = 0;
  int retained = 0;
  std::size_t made = 0;             // number of times it was created
  unsigned long long extra_us = 0;  // added to every copy within the GPU
  std::set<CUcontext> peers;        // kernels of this context may touch their memory
  std::shared_ptr<CUstream_st> legacy_stream;
  std::vector<std::shared_ptr<std::mutex>> queues;  // of the hardware, for kernels; each stream has one
};

namespace fake {

/// Guards all state except the queues of streams.
std::recursive_mutex& global_mutex();

/// The calling thread's context, or null.
[[nodiscard]] CUcontext current();
[[nodiscard]] bool is_device(CUdevice);
[[nodiscard]] bool is_context(CUcontext);
/// True if either of two GPUs may touch the other's memory directly.
[[nodiscard]] bool peers(CUdevice, CUdevice);

/// Live objects by handle, so that a destroyed handle is an error, not a crash.
template <class T>
class Live {
 public:
  void add(std::shared_ptr<T> object) {
    const std::lock_guard lock{global_mutex()};
    objects_[object.get()] = std::move(object);
  }
  [[nodiscard]] std::shared_ptr<T> find(T* handle) const {
    const std::lock_guard lock{global_mutex()};
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> remove(T* handle) {
    const std::lock_guard lock{global_mutex()};
    auto object = find(handle);
    objects_.erase(handle);
    return object;
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock{global_mutex()};
    return objects_.size();
  }
  template <class Visit>
  void each(Visit visit) const {
    std::map<T*, std::shared_ptr<T>> copy;
    {
      const std::lock_guard lock{global_mutex()};
      copy = objects_;
    }
    for (const auto& [handle, object] : copy) visit(*object);
  }

 private:
  std::map<T*, std::shared_ptr<T>> objects_;
};

}  // namespace fake
