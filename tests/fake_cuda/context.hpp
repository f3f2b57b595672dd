// Devices and their primary contexts. The driver's opaque handle types are defined by the fake itself, so that handles
// need no casts.
#pragma once
#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>

struct CUctx_st {
  CUdevice device = 0;
  int retained = 0;
  std::size_t made = 0;            // how often it was made anew
  unsigned long long extra_us = 0;  // what every copy within its GPU takes longer in it
  std::set<CUcontext> peers;       // whose memory kernels of this context may touch
  std::shared_ptr<CUstream_st> legacy_stream;
};

namespace fake {

/// Guards everything but the queues of streams.
std::recursive_mutex& world();

/// The calling thread's context, or null.
[[nodiscard]] CUcontext current();
[[nodiscard]] bool is_device(CUdevice);
[[nodiscard]] bool is_context(CUcontext);
/// True when either of two GPUs may touch the other's memory directly.
[[nodiscard]] bool peers(CUdevice, CUdevice);

/// Live objects by handle: a destroyed handle is an error, not a crash.
template <class T>
class Live {
 public:
  void add(std::shared_ptr<T> object) {
    const std::lock_guard lock{world()};
    objects_[object.get()] = std::move(object);
  }
  [[nodiscard]] std::shared_ptr<T> find(T* handle) const {
    const std::lock_guard lock{world()};
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> remove(T* handle) {
    const std::lock_guard lock{world()};
    auto object = find(handle);
    objects_.erase(handle);
    return object;
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock{world()};
    return objects_.size();
  }
  template <class Visit>
  void each(Visit visit) const {
    std::map<T*, std::shared_ptr<T>> copy;
    {
      const std::lock_guard lock{world()};
      copy = objects_;
    }
    for (const auto& [handle, object] : copy) visit(*object);
  }

 private:
  std::map<T*, std::shared_ptr<T>> objects_;
};

}  // namespace fake
