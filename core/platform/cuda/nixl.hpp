// NIXL of a platform: one-sided messages between the processes of a program.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "nixl/messages.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Loaded when a program first needs it, because it brings a UCX that hooks this process's allocator.
class NixlOfProcess {
 public:
  explicit NixlOfProcess(std::vector<NixlSource> sources) : sources_{std::move(sources)} {}

  /// Why no messages of NIXL can be exchanged here; "" if they can.
  [[nodiscard]] std::string why_not() { return library().facts().why_not; }
  /// Registers the memory of the session's messages of NIXL, and tells it to the processes that they are for. Throws
  /// Error{unsupported} for memory of a GPU that the library does not take, Error{failed}.
  void prepare(CudaSession&);
  /// The processes meet anew: connections to the former ones end.
  void forget_others() { agent_.reset(); }

 private:
  [[nodiscard]] const Nixl& library();
  std::vector<NixlSource> sources_;
  std::unique_ptr<Nixl> library_;     // null before it is needed
  std::shared_ptr<NixlAgent> agent_;  // likewise
};

}  // namespace linkscope
