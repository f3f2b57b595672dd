// This process as an agent of NIXL: its backend, the notifications that have come, and what others know of its memory.
#pragma once
#include <map>
#include <string>

#include "nixl/library.hpp"

namespace linkscope {

/// The kinds of memory that messages use, as NIXL counts them.
enum class NixlMemory : int { host = 0, gpu = 1 };

/// One thread at a time may use it.
class NixlAgent {
 public:
  /// An agent with backend UCX. `name` is its own among all processes. Throws Error{failed} that names the call.
  NixlAgent(const Nixl&, const std::string& name);
  ~NixlAgent();
  NixlAgent(const NixlAgent&) = delete;
  NixlAgent& operator=(const NixlAgent&) = delete;

  [[nodiscard]] const NixlCalls& calls() const { return calls_; }
  [[nodiscard]] void* handle() const { return agent_; }
  /// What others need to reach this process and its registered memory: bytes that only NIXL reads. Throws Error{failed}.
  [[nodiscard]] std::string description() const;
  /// The name of the process that a description is of. Throws Error{failed}.
  [[nodiscard]] std::string load(const std::string& description) const;
  /// Drops the notifications that have come.
  void forget_notifications();
  /// Takes a notification from `peer`; false: none has come. Each call moves data, too. Throws Error{failed}.
  [[nodiscard]] bool take_notification(const std::string& peer);
  /// Throws Error{failed}.
  void notify(const std::string& peer) const;

 private:
  void end();
  void take_all();
  NixlCalls calls_;
  void *agent_ = nullptr, *backend_ = nullptr, *map_ = nullptr;
  std::map<std::string, u64> came_;  // notifications by process
};

}  // namespace linkscope
