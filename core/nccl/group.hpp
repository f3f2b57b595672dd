// Ranks that run collectives of NCCL together, and a watch that ends collectives which hang.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/collective.hpp"
#include "nccl/library.hpp"

namespace linkscope {

/// A call for one rank. `bytes` of the input and of the output.
struct NcclCall {
  CollectiveKind kind{};
  NumberType type{};  // of the elements
  const void* in = nullptr;
  void* out = nullptr;
  u64 in_bytes = 0, out_bytes = 0;
};

/// The communicators of this process's ranks. Several threads may queue calls, one for each rank.
class NcclGroup {
 public:
  /// A rank of this process. `use` makes its GPU current for the calling thread.
  struct Own {
    u32 rank = 0;
    std::function<void()> use;
  };
  /// Meets the other ranks. Throws Error{timeout} if they do not come within `limit`, Error{failed} with NCCL's text.
  NcclGroup(const Nccl&, const NcclId&, u32 ranks, const std::vector<Own>&, Seconds limit);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Queues a rank's part on a stream of its GPU. An error of NCCL aborts all ranks of this process, so that none waits
  /// for ever. Throws Error{failed}.
  void queue(u32 rank, const NcclCall&, void* stream);
  /// Ends all work of this process's ranks, from any thread. The group cannot be used afterwards.
  void abort(const std::string& why) noexcept;
  /// Why the group was aborted; "" if it was not.
  [[nodiscard]] std::string why_ended() const;
  /// An error that NCCL noticed in the background; "" if there is none.
  [[nodiscard]] std::string background_error() const;

 private:
  void call(u32 rank, const NcclCall&, void* stream) const;
  /// By ncclSend and ncclRecv in one group: send_receive, and all_to_all of libraries that have no call for it.
  void send_and_receive(u32 rank, const NcclCall&, void* stream) const;
  const Nccl& nccl_;
  u32 ranks_;
  std::map<u32, NcclComm> comms_;  // by rank
  std::atomic<bool> ended_ = false;
  mutable std::mutex guard_;
  std::string why_;
};

/// Aborts a group unless the watch is destroyed in time, or as soon as NCCL reports an error in the background.
class NcclWatch {
 public:
  NcclWatch(NcclGroup&, Seconds limit);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

 private:
  void run(const std::stop_token&, Seconds limit);
  NcclGroup& group_;
  std::mutex guard_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

}  // namespace linkscope
