// UCX of a platform: messages between the processes of a program.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "platform/cuda/session.hpp"
#include "ucx/messages.hpp"

namespace linkscope {

/// Loaded when a program first needs it, because it hooks this process's allocator.
class UcxOfProcess {
 public:
  /// `open`: a GPU of this process, by its number.
  UcxOfProcess(std::vector<UcxSource> sources, std::function<Device&(u32 gpu)> open)
      : sources_{std::move(sources)}, open_{std::move(open)} {}

  /// Why an actor's messages of UCX cannot be exchanged here; "" if they can. `process`: this one.
  [[nodiscard]] std::string why_not(const Program&, const Actor&, u32 process);
  /// Connects this process with those that the session's messages of UCX are for.
  void prepare(CudaSession&);
  /// The processes meet anew: connections to the former ones end, and mappings of their memory.
  void forget_others();
  /// Whether one of the processes gave it memory of a GPU, which the others may have mapped. Alike in all of them.
  [[nodiscard]] bool shares_gpus() const { return shares_gpus_; }

 private:
  [[nodiscard]] const Ucx& library();
  [[nodiscard]] UcxMessages& messages();
  void take_gpu(const Device&);
  std::vector<UcxSource> sources_;
  std::function<Device&(u32)> open_;
  bool made_with_gpu_ = false, shares_gpus_ = false;
  std::unique_ptr<Ucx> library_;           // null before it is needed
  std::shared_ptr<UcxMessages> messages_;  // likewise
};

}  // namespace linkscope
