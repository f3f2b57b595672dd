// File descriptors that a process gives to others of its user, over a socket of this host.
#pragma once
#include <string>
#include <thread>

#include "host/descriptor.hpp"

namespace linkscope {

class HandleServer {
 public:
  /// Gives duplicates of a descriptor to those who ask. Throws Error{failed}.
  explicit HandleServer(Descriptor given);
  ~HandleServer();
  HandleServer(const HandleServer&) = delete;
  HandleServer& operator=(const HandleServer&) = delete;

  /// What others ask by: a text without spaces.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  void serve();
  Descriptor given_, listener_;
  std::string name_;
  std::thread server_;
};

/// The descriptor that a server of that name gives. Throws Error{lost} if there is none, Error{failed} if it is of another
/// user or does not answer.
[[nodiscard]] Descriptor ask_for_descriptor(const std::string& name);

}  // namespace linkscope
