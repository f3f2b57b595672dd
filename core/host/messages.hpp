// Messages to a process of this host that answers each of them with the same bytes: the round trips of a ping-pong. Senders
// copy into the channel and receivers copy out of it, as message-passing libraries do with small messages.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "base/channel.hpp"
#include "base/units.hpp"
#include "host/descriptor.hpp"
#include "host/shared_pages.hpp"

namespace linkscope {

class Messenger {
 public:
  /// Starts the other process: this executable with `answer_option`, so its main() must call answer_messages(). Shared
  /// memory is on the NUMA node; the other process may use `cpus` (numbers of the system; none: any CPU). `bytes` is a
  /// multiple of 8. Only a thread that lives as long as the messenger may make it: the other process ends with it.
  /// Throws Error{failed} if there is no other process, Error{timeout} if that one does not answer.
  Messenger(Channel, u64 bytes, u32 node, const std::vector<int>& cpus);
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  /// Sends a message and waits for the answer. Throws Error{timeout} after 2 s, Error{failed} if the other process ended.
  void round_trip();
  [[nodiscard]] u64 bytes() const { return sent_.size() * sizeof(u64); }
  /// Bytes of the last answer that differ from its message.
  [[nodiscard]] u64 wrong_bytes() const;

 private:
  void exchange(Seconds patience);
  void end_other() const;

  Channel channel_;
  std::vector<u64> sent_, came_;
  u64 trips_ = 0;
  SharedPages pages_;
  Descriptor socket_;
  pid_t other_ = -1;
};

inline constexpr const char* answer_option = "--answer-messages";
/// The other process: answers until its parent ends. Returns its exit status; -1 if the arguments of main() do not ask for
/// it.
[[nodiscard]] int answer_messages(int count, char** arguments);

}  // namespace linkscope
