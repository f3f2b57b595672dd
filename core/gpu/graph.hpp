// Graphs of copies and kernels, each node after the one before.
#pragma once
#include <vector>

#include "base/units.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

/// Owns a chain of kernels without arguments.
class KernelChain {
 public:
  KernelChain(const Driver&, CUfunction, u64 nodes);
  ~KernelChain();
  KernelChain(const KernelChain&) = delete;
  KernelChain& operator=(const KernelChain&) = delete;
  [[nodiscard]] CUgraph get() const { return graph_; }

 private:
  const Driver& driver_;
  CUgraph graph_ = nullptr;
};

/// Owns a graph that can be launched.
class ReadyGraph {
 public:
  ReadyGraph(const Driver&, CUgraph);
  ReadyGraph(ReadyGraph&&) noexcept;
  ReadyGraph& operator=(ReadyGraph&&) = delete;
  ~ReadyGraph();
  [[nodiscard]] CUgraphExec get() const { return exec_; }

 private:
  const Driver* driver_;
  CUgraphExec exec_ = nullptr;
};

/// Owns a graph of copies.
class CopyGraph {
 public:
  explicit CopyGraph(const Driver&);
  ~CopyGraph();
  CopyGraph(const CopyGraph&) = delete;
  CopyGraph& operator=(const CopyGraph&) = delete;

  /// Sets what later launches do: the original copies, or as many others in their place.
  void set(const std::vector<CUDA_MEMCPY3D>&, CUcontext);
  /// Uploads it to the GPU, so that no launch has to. Queues on the stream.
  void upload(CUstream) const;
  void launch(CUstream) const;

 private:
  const Driver& driver_;
  CUgraph graph_ = nullptr;
  std::vector<CUgraphNode> nodes_;
  CUgraphExec ready_ = nullptr;
};

}  // namespace linkscope
