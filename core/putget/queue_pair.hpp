// A queue pair of a network card that a channel posts to. Who makes it, by a library of the card's maker, connects it and
// registers memory; this room writes its elements and reads its completions (verbs.hpp).
#pragma once
#include <optional>
#include <string>

#include "base/error.hpp"
#include "putget/card_queues.hpp"
#include "putget/region.hpp"

namespace linkscope {

/// A queue pair that is ready to send and that no channel has used. The poster reaches its memory: host memory for CPU
/// threads, pinned or of its own GPU for a GPU. The doorbell is a register of the card, mapped for the poster. Records are 0.
struct QueuePair {
  u32 number = 0;
  std::byte *send = nullptr, *completions = nullptr;
  u64 send_bytes = 0, completions_bytes = 0;  // no fewer entries of completions than blocks to send, of 64 bytes each
  std::byte *send_record = nullptr, *completions_record = nullptr, *doorbell = nullptr;
  // What the card knows: the local region, and 8 bytes where it stores what a word was before an addition.
  u64 local = 0, old_value = 0;
  u32 local_key = 0, old_value_key = 0;
};

/// The state of a queue pair for one poster, in host memory or in that of the poster's GPU.
class PostedQueues {
 public:
  /// Empties the queues. Throws Error{usage} for memory that the poster does not reach or that is no queue, and for regions
  /// that no card can join.
  PostedQueues(PutGet&, const QueuePair&, const PutRegion& local, const PutRegion& remote, std::optional<u32> gpu);
  ~PostedQueues();
  PostedQueues(const PostedQueues&) = delete;
  PostedQueues& operator=(const PostedQueues&) = delete;

  /// Channel::card.
  [[nodiscard]] u64 address() const { return on_gpu_.bytes ? on_gpu_.memory.address() : reinterpret_cast<u64>(&here_); }
  [[nodiscard]] u32 blocks() const { return here_.send.blocks; }

 private:
  [[nodiscard]] u64 reached(const std::byte* start, const char* what) const;
  void empty(u64 start, u64 bytes, u8 with) const;
  PutGet& all_;
  std::optional<u32> gpu_;
  CardQueues here_{};
  DeviceBlock on_gpu_;
};

/// The error of a channel whose word ControlWord::completion is `packed`.
[[nodiscard]] Error card_error(u64 packed);

}  // namespace linkscope
