// The machine at hand: its NUMA nodes, and 0 to N GPUs through the CUDA driver.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "platform/cuda/contexts.hpp"
#include "platform/cuda/device.hpp"
#include "program/platform.hpp"

namespace linkscope {

struct PeerFacts {
  u32 from = 0, to = 0;
  bool access = false, native_atomics = false;
  int performance_rank = 0;
};

/// What the driver says of itself and its GPUs (in PCI bus order), before anything is opened.
struct DriverFacts {
  bool present = false;
  int version = 0;
  std::string why_not;
  std::vector<std::string> missing;
  std::vector<DeviceFacts> gpus;
  std::vector<PeerFacts> peers;
};

/// The contexts that were made of a GPU, and what an operation costs in each; the last is in use.
struct ContextsMade {
  u32 gpu = 0;
  std::vector<Seconds> costs;
};

struct CudaPlatform : Platform {
  [[nodiscard]] virtual const DriverFacts& facts() const = 0;
  /// Before anything is prepared: contexts that cost alike. Not of GPUs that another process could take meanwhile (compute
  /// mode), and none where what an operation costs cannot be told. Throws Error{usage} for a GPU that is not there.
  [[nodiscard]] virtual std::vector<ContextsMade> make_contexts(const std::vector<u32>& gpus, const Floors&) = 0;
};

/// So much memory of a kind at a place.
struct Wanted {
  Place at;
  MemKind kind = MemKind::pageable;
  u64 bytes = 0;
};

/// `most`: what programs to come want at most, so that memory which they share is made once.
[[nodiscard]] std::unique_ptr<CudaPlatform> make_cuda(const std::vector<Wanted>& most = {});

}  // namespace linkscope
