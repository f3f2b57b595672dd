#include "gpu/graph.hpp"

#include <utility>

namespace linkscope {

KernelChain::KernelChain(const Driver& driver, CUfunction kernel, u64 nodes) : driver_{driver} {
  LINKSCOPE_CU(driver_, cuGraphCreate, &graph_, 0);
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = kernel;
  node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  CUgraphNode before = nullptr;
  for (u64 i = 0; i < nodes; ++i) {
    CUgraphNode added = nullptr;
    LINKSCOPE_CU(driver_, cuGraphAddKernelNode, &added, graph_, &before, i ? 1 : 0, &node);
    before = added;
  }
}

KernelChain::~KernelChain() { driver_.cuGraphDestroy(graph_); }

ReadyGraph::ReadyGraph(const Driver& driver, CUgraph graph) : driver_{&driver} {
  LINKSCOPE_CU(*driver_, cuGraphInstantiateWithFlags, &exec_, graph, 0);
}

ReadyGraph::ReadyGraph(ReadyGraph&& other) noexcept
    : driver_{other.driver_}, exec_{std::exchange(other.exec_, nullptr)} {}

ReadyGraph::~ReadyGraph() {
  if (exec_) driver_->cuGraphExecDestroy(exec_);
}

CopyGraph::CopyGraph(const Driver& driver) : driver_{driver} { LINKSCOPE_CU(driver_, cuGraphCreate, &graph_, 0); }

CopyGraph::~CopyGraph() {
  if (ready_) driver_.cuGraphExecDestroy(ready_);
  driver_.cuGraphDestroy(graph_);
}

void CopyGraph::set(const std::vector<CUDA_MEMCPY3D>& copies, CUcontext context) {
  if (ready_) {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      LINKSCOPE_CU(driver_, cuGraphExecMemcpyNodeSetParams, ready_, nodes_[i], &copies[i], context);
    return;
  }
  for (const auto& copy : copies) {
    CUgraphNode node = nullptr;
    LINKSCOPE_CU(driver_, cuGraphAddMemcpyNode, &node, graph_, nodes_.empty() ? nullptr : &nodes_.back(),
                 nodes_.empty() ? 0 : 1, &copy, context);
    nodes_.push_back(node);
  }
  LINKSCOPE_CU(driver_, cuGraphInstantiateWithFlags, &ready_, graph_, 0);
}

void CopyGraph::upload(CUstream stream) const { LINKSCOPE_CU(driver_, cuGraphUpload, ready_, stream); }

void CopyGraph::launch(CUstream stream) const { LINKSCOPE_CU(driver_, cuGraphLaunch, ready_, stream); }

}  // namespace linkscope
