// UCX of a platform: messages between the processes of a program.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "platform/cuda/session.hpp"
#include "ucx/messages.hpp"

namespace linkscope {

/// Loaded when a program first needs it, because it hooks this process's allocator.
class UcxOfProcess {
 public:
  explicit UcxOfProcess(std::vector<UcxSource> sources) : sources_{std::move(sources)} {}

  /// Why an actor's messages of UCX cannot be exchanged here; "" if they can.
  [[nodiscard]] std::string why_not(const Program&, const Actor&);
  /// Connects this process with those that the session's messages of UCX are for.
  void prepare(CudaSession&);
  /// The processes meet anew: connections to the former ones end.
  void forget_others() { messages_.reset(); }

 private:
  [[nodiscard]] const Ucx& library();
  [[nodiscard]] UcxMessages& messages();
  std::vector<UcxSource> sources_;
  std::unique_ptr<Ucx> library_;           // null before it is needed
  std::shared_ptr<UcxMessages> messages_;  // likewise
};

}  // namespace linkscope
