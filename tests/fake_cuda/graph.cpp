// Graphs of kernels: what is launched is a copy of what was instantiated, node after node in the order in which they were
// added, which is one of those that their dependencies allow.
#include <algorithm>
#include <memory>
#include <vector>

#include "calls.hpp"
#include "context.hpp"
#include "function.hpp"
#include "log.hpp"
#include "stream.hpp"

struct CUgraphNode_st {};

struct CUgraph_st {
  struct Node {
    std::unique_ptr<CUgraphNode_st> handle;
    CUfunction function = nullptr;
    fake::Launch launch;
  };
  std::vector<Node> nodes;
};

struct CUgraphExec_st {
  CUcontext context = nullptr;
  std::vector<fake::Launch> launches;
};

namespace fake {
namespace {

Live<CUgraph_st>& graphs() {
  static auto* live = new Live<CUgraph_st>;
  return *live;
}

Live<CUgraphExec_st>& ready() {
  static auto* live = new Live<CUgraphExec_st>;
  return *live;
}

}  // namespace

CUresult graph_create(CUgraph* handle, unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto graph = std::make_shared<CUgraph_st>();
  *handle = graph.get();
  graphs().add(std::move(graph));
  return CUDA_SUCCESS;
}

CUresult graph_destroy(CUgraph graph) { return graphs().remove(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult graph_add_kernel_node(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* after, size_t count, const CUDA_KERNEL_NODE_PARAMS* wanted) {
  const auto graph = graphs().find(graph_handle);
  if (!graph || !wanted || !wanted->func) return CUDA_ERROR_INVALID_VALUE;
  const auto is_node = [&](CUgraphNode node) {
    return std::any_of(graph->nodes.begin(), graph->nodes.end(), [&](const auto& known) { return known.handle.get() == node; });
  };
  if (!std::all_of(after, after + count, is_node)) return CUDA_ERROR_INVALID_VALUE;
  CUgraph_st::Node node{std::make_unique<CUgraphNode_st>(), wanted->func, (*wanted->func->prepare)(wanted->func->context, wanted->kernelParams)};
  *handle = node.handle.get();
  graph->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult graph_instantiate_with_flags(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags) {
  const auto graph = graphs().find(graph_handle);
  if (!graph || flags != 0 || graph->nodes.empty()) return CUDA_ERROR_INVALID_VALUE;
  auto exec = std::make_shared<CUgraphExec_st>();
  exec->context = graph->nodes.front().function->context;
  for (const auto& node : graph->nodes) exec->launches.push_back(node.launch);
  *handle = exec.get();
  ready().add(std::move(exec));
  return CUDA_SUCCESS;
}

CUresult graph_exec_destroy(CUgraphExec exec) { return ready().remove(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult graph_upload(CUgraphExec handle, CUstream stream_handle) {
  const auto exec = ready().find(handle);
  if (!exec || !stream_of(stream_handle)) return CUDA_ERROR_INVALID_VALUE;
  log("upload", exec->context, std::to_string(exec->launches.size()));
  return CUDA_SUCCESS;
}

CUresult graph_launch(CUgraphExec handle, CUstream stream_handle) {
  const auto exec = ready().find(handle);
  const auto stream = stream_of(stream_handle);
  if (!exec || !stream || stream->context != exec->context) return CUDA_ERROR_INVALID_VALUE;
  log("graph", exec->context, std::to_string(exec->launches.size()));
  stream->submit([exec] {
    for (const auto& launch : exec->launches) run(launch);
  });
  return CUDA_SUCCESS;
}

}  // namespace fake
