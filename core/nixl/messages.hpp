// One-sided messages between processes by NIXL: the sender writes to the other's memory, and a notification tells the
// receiver.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rank_post.hpp"
#include "nixl/agent.hpp"

namespace linkscope {

/// The memory of a receiver, as a sender of another process addresses it.
struct NixlTarget {
  u64 start = 0, bytes = 0, gpu = 0;
  NixlMemory memory = NixlMemory::host;
};

/// The messages of a session, whose memory is registered while this lives. One thread at a time may use it.
class NixlMessages {
 public:
  explicit NixlMessages(std::shared_ptr<NixlAgent>);
  ~NixlMessages();
  NixlMessages(const NixlMessages&) = delete;
  NixlMessages& operator=(const NixlMessages&) = delete;

  /// Makes the memory of a post, of one slice, known to NIXL. `gpu`: its number by CUDA, of memory of a GPU. Throws Error{unsupported} for memory of a
  /// GPU that the library does not take, Error{failed} for other memory.
  void add_memory(const RankPost&, u32 gpu);
  /// Connects this process with another one, by its description. Throws Error{failed}.
  void connect(u32 peer, const std::string& description);
  /// The memory there that messages from `post` go to. Throws Error{failed}.
  void add_target(const RankPost& post, u32 gpu, const NixlTarget&);
  /// `count` iterations, each of which has all posts in order. `window`: writes under way before one
  /// notification follows them; the receiver of messages in one direction then answers. 0: each write has its own
  /// notification. Throws Error{failed}, Error{timeout} if nothing comes for 20 s.
  void exchange(std::span<const RankPost>, u32 window, u64 count);

 private:
  /// Writes from a post to a target: one with a notification, and those of a window.
  struct Route {
    RankPost from;
    NixlTarget to;
    u32 gpu = 0;
    void* alone = nullptr;
    std::vector<void*> window;
  };
  [[nodiscard]] void* make_request(const Route&, bool notifies) const;
  void fill_windows(std::span<const RankPost>, u32 window);
  void send(u32 peer);
  void write_window(std::span<const RankPost>, u64 count);
  void wait(u32 peer);
  void finish(void* request) const;
  void end(void* request) const;

  std::shared_ptr<NixlAgent> agent_;
  const NixlCalls& calls_;
  std::vector<void*> registered_;
  std::map<u32, std::string> peers_;
  std::map<u32, Route> routes_;  // by receiver
};

}  // namespace linkscope
