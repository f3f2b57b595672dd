// Collectives of the ranks of a program: streams call NCCL, CPU threads MPI.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/devices.hpp"
#include "nccl/group.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

/// NCCL of a platform: loaded when a program first needs it. Groups of ranks live on, because meeting takes long.
class Collectives {
 public:
  explicit Collectives(std::vector<NcclSource> sources) : sources_{std::move(sources)} {}

  /// Why an actor's collective cannot run here; "" if it can. `mpi`: null without MPI.
  [[nodiscard]] std::string why_not(const MpiWorld* mpi, const Program&, const Actor&);
  /// Gives a session with collectives of NCCL its group. The session's actors exist.
  void prepare(CudaSession&, Devices&);
  /// Ends the groups that span processes, some of which may have failed.
  void drop_groups_of_processes();
  /// Ends all groups. Returns whether there were any.
  bool drop_groups();

 private:
  struct Kept {
    std::shared_ptr<NcclGroup> group;
    bool one_process = true;
  };
  [[nodiscard]] const Nccl& nccl();
  std::vector<NcclSource> sources_;
  std::unique_ptr<Nccl> nccl_;          // null before it is needed
  std::map<std::string, Kept> groups_;  // by the places and processes of their ranks
};

/// Watches a sample's collectives of NCCL; null for programs without any.
[[nodiscard]] std::unique_ptr<NcclWatch> watch_collectives(const CudaSession&, const std::vector<u32>& batch);
/// Throws what ended the collectives of a sample, if something did.
void check_collectives(const CudaSession&);

/// That many iterations of a CPU thread's collective.
void run_collective_by_mpi(CudaSession&, ActorState&, u32 count);
/// The collective as a step.
[[nodiscard]] std::unique_ptr<StepRunner> collective_runner(const Collective&);

}  // namespace linkscope
