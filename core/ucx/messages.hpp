// Messages between processes by UCX: tagged sends and receives of one worker.
#pragma once
#include <deque>
#include <map>
#include <span>
#include <string>

#include "base/rank_post.hpp"
#include "ucx/library.hpp"

namespace linkscope {

/// One thread at a time may use it.
class UcxMessages {
 public:
  /// Throws Error{failed} with UCX's text.
  explicit UcxMessages(const Ucx&);
  ~UcxMessages();
  UcxMessages(const UcxMessages&) = delete;
  UcxMessages& operator=(const UcxMessages&) = delete;

  /// The number of this process, which its messages carry.
  void set_process(u32 process) { process_ = process; }
  /// By what others reach this process: its number, and bytes that only UCX reads.
  [[nodiscard]] std::string address() const;
  /// Connects with a peer by its address, unless it did so already. Throws Error{failed}.
  void connect(u32 peer, const std::string& address);
  /// Why it takes no memory of GPUs; "" if it does.
  [[nodiscard]] std::string why_not_gpu() const;
  /// `count` iterations from `first`, each of which has all posts in order. `window`: messages under way before both
  /// sides wait for all of them; the receiver of messages in one direction then answers. 0: one after the other. Throws
  /// Error{failed} with UCX's text, Error{timeout} if nothing moves for 20 s.
  void exchange(std::span<const RankPost>, u32 window, u64 first, u64 count);
  /// Starts a send of an iteration, and waits until no more than `ahead` of those that were started are under way.
  /// Throws as exchange() does.
  void send_ahead(const RankPost&, u64 iteration, u32 ahead);
  /// Waits until no more than `most` sends are under way. Throws as exchange() does.
  void finish_sends(u32 most);

 private:
  enum class Kind : u8 { message, answer };
  void end();
  [[nodiscard]] void* start(const RankPost&, u64 iteration);
  [[nodiscard]] void* start(bool sends, u32 peer, Kind, std::byte* at, u64 bytes, bool on_gpu);
  void finish(void* request);
  void answer(const RankPost&);

  const Ucx& ucx_;
  u32 process_ = 0;
  void *context_ = nullptr, *worker_ = nullptr;
  u64 number_ = 0;                  // of those that this process has made, from 1
  std::map<u32, void*> endpoints_;  // by process
  std::map<u32, u64> numbers_;      // theirs, likewise
  std::deque<void*> under_way_;     // sends, the oldest first
};

}  // namespace linkscope
