// Messages between processes by UCX: tagged sends and receives of one worker.
#pragma once
#include <map>
#include <span>
#include <string>

#include "base/rank_post.hpp"
#include "ucx/library.hpp"

namespace linkscope {

/// One thread at a time may use it.
class UcxMessages {
 public:
  /// `process`: the number of this one. Throws Error{failed} with UCX's text.
  UcxMessages(const Ucx&, u32 process);
  ~UcxMessages();
  UcxMessages(const UcxMessages&) = delete;
  UcxMessages& operator=(const UcxMessages&) = delete;

  /// By what others reach this process: bytes that only UCX reads.
  [[nodiscard]] std::string address() const;
  [[nodiscard]] bool reaches(u32 peer) const { return endpoints_.contains(peer); }
  /// Throws Error{failed}.
  void connect(u32 peer, const std::string& address);
  /// Why it takes no memory of GPUs; "" if it does.
  [[nodiscard]] std::string why_not_gpu() const;
  /// `count` iterations from `first`, each of which has all posts in order. `window`: messages under way before both
  /// sides wait for all of them; the receiver of messages in one direction then answers. 0: one after the other. Throws
  /// Error{failed} with UCX's text, Error{timeout} if nothing moves for 20 s.
  void exchange(std::span<const RankPost>, u32 window, u64 first, u64 count);

 private:
  enum class Kind : u8 { message, answer };
  void end();
  [[nodiscard]] void* start(const RankPost&, u64 iteration);
  [[nodiscard]] void* start(bool sends, u32 peer, Kind, std::byte* at, u64 bytes);
  void finish(void* request);
  void answer(const RankPost&);

  const Ucx& ucx_;
  u32 process_;
  void *context_ = nullptr, *worker_ = nullptr;
  std::map<u32, void*> endpoints_;  // by process
};

}  // namespace linkscope
