// Graphs whose nodes each follow at most one other node. A launch queues the nodes in the order of their addition.
#include <algorithm>
#include <vector>

#include "calls.hpp"
#include "captures.hpp"
#include "context.hpp"
#include "copies.hpp"
#include "function.hpp"
#include "leaks.hpp"
#include "log.hpp"
#include "stream.hpp"

struct CUgraphNode_st {
  std::function<void()> work;
  bool rows = false;
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};

struct CUgraphExec_st {
  std::vector<std::pair<CUgraphNode, std::function<void()>>> work;
};

namespace fake {
namespace {

Live<CUgraph_st>& graphs() {
  static auto* live = new Live<CUgraph_st>;
  return *live;
}

Live<CUgraphExec_st>& executables() {
  static auto* live = new Live<CUgraphExec_st>;
  return *live;
}

/// Searches from the end, because a node mostly follows the node that was added just before it.
bool has_all(const CUgraph_st& graph, const CUgraphNode* nodes, size_t count) {
  return std::all_of(nodes, nodes + count, [&](CUgraphNode node) {
    return std::any_of(graph.nodes.rbegin(), graph.nodes.rend(),
                       [&](const auto& known) { return known.get() == node; });
  });
}

bool has_rows(const CUDA_MEMCPY3D& copy) { return copy.Height > 1 || copy.Depth > 1; }

}  // namespace

void count_graphs(LeakCounts& counts) {
  counts["graphs"] += graphs().size();
  counts["executable graphs"] += executables().size();
}

CUgraph graph_of(std::vector<std::function<void()>> work) {
  auto made = std::make_shared<CUgraph_st>();
  for (auto& one : work) made->nodes.push_back(std::make_unique<CUgraphNode_st>(CUgraphNode_st{std::move(one)}));
  const CUgraph graph = made.get();
  graphs().add(std::move(made));
  return graph;
}

CUresult graph_create(CUgraph* graph, unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<CUgraph_st>();
  *graph = made.get();
  graphs().add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult graph_destroy(CUgraph graph) { return graphs().remove(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult graph_add_memcpy_node(CUgraphNode* node, CUgraph handle, const CUgraphNode* after, size_t count,
                               const CUDA_MEMCPY3D* copy, CUcontext context) {
  const auto graph = graphs().find(handle);
  if (!graph || !is_context(context)) return CUDA_ERROR_INVALID_VALUE;
  if (!has_all(*graph, after, count)) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUgraphNode_st>();
  if (const CUresult status = work_of(*copy, made->work); status != CUDA_SUCCESS) return status;
  made->rows = has_rows(*copy);
  *node = made.get();
  graph->nodes.push_back(std::move(made));
  return CUDA_SUCCESS;
}

CUresult graph_add_kernel_node(CUgraphNode* node, CUgraph handle, const CUgraphNode* after, size_t count,
                               const CUDA_KERNEL_NODE_PARAMS* wanted) {
  const auto graph = graphs().find(handle);
  if (!graph || !wanted || !wanted->func) return CUDA_ERROR_INVALID_VALUE;
  if (!has_all(*graph, after, count)) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUgraphNode_st>();
  const unsigned blocks = wanted->gridDimX * wanted->gridDimY * wanted->gridDimZ;
  made->work = [launch = (*wanted->func->prepare)(wanted->func->context, wanted->kernelParams, blocks)] {
    run(launch);
  };
  *node = made.get();
  graph->nodes.push_back(std::move(made));
  return CUDA_SUCCESS;
}

CUresult graph_instantiate_with_flags(CUgraphExec* exec, CUgraph handle, unsigned long long flags) {
  const auto graph = graphs().find(handle);
  if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<CUgraphExec_st>();
  for (const auto& node : graph->nodes) made->work.emplace_back(node.get(), node->work);
  *exec = made.get();
  executables().add(std::move(made));
  log("graph", current(), std::to_string(graph->nodes.size()));
  return CUDA_SUCCESS;
}

CUresult graph_exec_memcpy_node_set_params(CUgraphExec handle, CUgraphNode node, const CUDA_MEMCPY3D* copy,
                                           CUcontext context) {
  const auto exec = executables().find(handle);
  if (!exec || !is_context(context)) return CUDA_ERROR_INVALID_VALUE;
  const auto found =
      std::find_if(exec->work.begin(), exec->work.end(), [&](const auto& known) { return known.first == node; });
  if (found == exec->work.end() || node->rows || has_rows(*copy))
    return CUDA_ERROR_INVALID_VALUE;  // neither the node nor the new copy may have several rows
  return work_of(*copy, found->second);
}

CUresult graph_exec_destroy(CUgraphExec exec) {
  return executables().remove(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_upload(CUgraphExec handle, CUstream stream_handle) {
  const auto exec = executables().find(handle);
  const auto stream = stream_of(stream_handle);
  if (!exec || !stream) return CUDA_ERROR_INVALID_VALUE;
  log("graph-upload", stream->context, std::to_string(exec->work.size()));
  return CUDA_SUCCESS;
}

CUresult graph_launch(CUgraphExec handle, CUstream stream_handle) {
  const auto exec = executables().find(handle);
  const auto stream = stream_of(stream_handle);
  if (!exec || !stream) return CUDA_ERROR_INVALID_VALUE;
  log("graph-launch", stream->context, std::to_string(exec->work.size()));
  for (const auto& [node, work] : exec->work) stream->submit(work);
  return CUDA_SUCCESS;
}

}  // namespace fake
