// The paths between host memory and one GPU: its own link, and those of helper GPUs, through a little memory of theirs.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transfer/hops.hpp"
#include "transfer/methods.hpp"

namespace linkscope {

/// The helpers that the application allows and that the lane's GPU can reach, at most `links` - 1.
[[nodiscard]] std::vector<u32> helpers_of(const Resources&, const CopyLane&, u32 links);

/// The paths of one copy. Chunks take whichever path is free.
class Paths {
 public:
  /// Takes the helpers that do not work for another stream and have memory left. All work waits for the lane's earlier
  /// work. Throws Error.
  Paths(const Resources&, const CopyLane&, Towards, const std::vector<u32>& helpers);
  Paths(const Paths&) = delete;
  Paths& operator=(const Paths&) = delete;

  [[nodiscard]] u64 count() const { return paths_.size(); }
  /// Runs work that calls queue(). Then the lane's stream waits for all chunks. After an error of the work, it waits
  /// itself and rethrows; Error{lost} if the driver cannot wait.
  void run(const std::function<void()>& work);
  /// Queues a chunk, of at most a slot of the hops, between memory of the GPU and pinned memory. `slot`: the part of the
  /// arena that the pinned memory is, which is guarded. Waits for a free path for two milliseconds; if earlier work of
  /// the stream takes longer, the chunk is queued behind the fewest bytes. Several threads may call this at once.
  void queue(CUdeviceptr device, std::byte* pinned, u64 bytes, Slot* slot);

 private:
  struct Path {
    CopyLane lane;                               // of the work on host memory
    Hops::Lease hop;                             // none: the GPU's own link
    std::vector<std::unique_ptr<Event>> ends{};  // of the latest chunks on the GPU's own link, by turns
    std::size_t next = 0, used = 0;
    std::atomic<u64> queued{0};  // bytes
    std::mutex mutex{};
  };
  [[nodiscard]] Path& take(std::unique_lock<std::mutex>& held);
  [[nodiscard]] bool has_room(const Path&) const;
  void queue_on(Path&, CUdeviceptr device, std::byte* pinned, u64 bytes) const;

  const Driver& driver_;
  CopyLane lane_;
  Towards towards_;
  std::vector<std::unique_ptr<Path>> paths_;
  std::atomic<bool> is_impatient_{false};
};

}  // namespace linkscope
