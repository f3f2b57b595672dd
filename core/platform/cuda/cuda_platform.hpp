// This machine: its NUMA nodes, and 0 to N GPUs through the CUDA driver.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "gpu/facts.hpp"
#include "host/far_sockets.hpp"
#include "mpi/world.hpp"
#include "nccl/library.hpp"
#include "nixl/library.hpp"
#include "platform/cuda/contexts.hpp"
#include "program/platform.hpp"
#include "ucx/library.hpp"

namespace linkscope {

/// The driver's facts about itself and its GPUs (in PCI bus order), before anything is opened.
struct DriverFacts {
  bool present = false;
  int version = 0;
  std::string why_not;
  std::vector<std::string> missing;
  std::vector<DeviceFacts> gpus;
  std::vector<PeerFacts> peers;
};

/// The contexts that were made on a GPU, with the cost of an operation in each; the last is in use.
struct ContextsMade {
  u32 gpu = 0;
  std::vector<Seconds> costs;
};

struct CudaPlatform : Platform {
  [[nodiscard]] virtual const DriverFacts& facts() const = 0;
  /// Before anything is prepared: chooses contexts of equal cost. Not for GPUs that another process could take
  /// meanwhile (compute mode), and not if the cost of an operation is unknown. Throws Error{usage} for a GPU that does
  /// not exist.
  [[nodiscard]] virtual std::vector<ContextsMade> make_contexts(const std::vector<u32>& gpus, const Floors&,
                                                                const std::map<u32, Seconds>& own) = 0;
  /// Meets the other processes of later programs (host/peers.hpp). All of them then prepare and run the same programs at
  /// the same time. An error of one ends the meeting, and they join again.
  virtual void join(u32 process, u32 processes, const std::string& meeting, FarPeers far) = 0;
};

/// An amount of memory of a kind at a place.
struct Wanted {
  Place at;
  MemKind kind = MemKind::pageable;
  u64 bytes = 0;
};

/// `most`: the largest demands of later programs, so that shared memory is allocated once. `mpi` outlives the platform;
/// null: programs with messages of MPI are unsupported. `nccl`, `ucx`, `nixl`: libraries to try, if a program needs one.
[[nodiscard]] std::unique_ptr<CudaPlatform> make_cuda(const std::vector<Wanted>& most = {},
                                                      const MpiWorld* mpi = nullptr,
                                                      const std::vector<NcclSource>& nccl = {},
                                                      const std::vector<UcxSource>& ucx = {},
                                                      const std::vector<NixlSource>& nixl = {});

}  // namespace linkscope
