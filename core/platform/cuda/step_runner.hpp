// A step of an actor's loop with the executor that was chosen for it when the program was prepared, so that iterations
// choose nothing.
#pragma once
#include <optional>

#include "base/units.hpp"

namespace linkscope {

struct ActorState;
class Checks;
struct CudaSession;

class StepRunner {
 public:
  StepRunner() = default;
  virtual ~StepRunner() = default;
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  /// Loads its device code. Must precede run() of an actor with a GPU.
  virtual void load_code(ActorState&) {}
  /// Queues (streams) or does (CPU threads) one iteration, or as many dependent steps. Does nothing for steps that only
  /// run as a whole loop.
  virtual void run(CudaSession&, ActorState&, u64 /*steps*/) {}
  /// The value of the actor's result before the first iteration; none: the step leaves no result.
  [[nodiscard]] virtual std::optional<u64> first_result(const CudaSession&) const { return {}; }
  /// Adds the comparisons that show whether the step did its work.
  virtual void add_checks(const CudaSession&, const ActorState&, Checks&) const {}
};

}  // namespace linkscope
