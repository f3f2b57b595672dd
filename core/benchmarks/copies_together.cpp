// Explicit copies that are queued together: all copies of a batch by one call of cuMemcpyBatchAsync, or by one launch
// of a graph with a node each. A single operation is such a call or graph with one copy.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_copies_together(const Case& c) { return one_copy(c, {c.src, c.dst, c.src_memory, c.dst_memory}); }

}  // namespace

std::vector<Benchmark> copies_together() {
  using enum PlaceKind;
  using enum MemKind;
  using Memories = std::vector<std::pair<MemKind, MemKind>>;
  std::vector<Benchmark> rows;
  for (const Engine engine : {Engine::batch, Engine::graph}) {
    const bool batch = engine == Engine::batch;
    const auto* source = batch ? "CUDA 13.0: cuMemcpyBatchAsync" : "CUDA: graphs of memcpy nodes";
    const auto add = [&](const char* name, const std::string_view by_batch, const std::string_view by_graph,
                         PlaceKind src, PlaceKind dst, Relation relation, Memories memories) {
      std::vector<Param> params{mode_param()};
      if (relation == Relation::different) params.push_back(initiator_param());
      params.insert(params.end(), {clock_param(), idle_param()});
      rows.push_back({name, batch ? by_batch : by_graph, source, engine, src, dst, relation, std::move(memories),
                      std::move(params), build_copies_together});
    };
    add("h2d", "copies from host memory to a GPU, a batch by one call",
        "copies from host memory to a GPU, a batch as one graph", numa, gpu, Relation::any,
        {{pinned, device}, {registered, device}});
    add("d2h", "copies from a GPU to host memory, a batch by one call",
        "copies from a GPU to host memory, a batch as one graph", gpu, numa, Relation::any,
        {{device, pinned}, {device, registered}});
    add("d2d", "copies between two GPUs, a batch by one call", "copies between two GPUs, a batch as one graph", gpu,
        gpu, Relation::different, {{device, device}});
    add("local", "copies within a GPU's memory, a batch by one call",
        "copies within a GPU's memory, a batch as one graph", gpu, gpu, Relation::same, {{device, device}});
  }
  return rows;
}

}  // namespace linkscope
