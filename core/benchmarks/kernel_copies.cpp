// nvbandwidth *_memcpy_sm: explicit copies by the SMs of a GPU, which read host memory or another GPU's (pull) or write
// it (push), with loads and stores of 16 bytes or with the tensor memory accelerator (TMA). No copy engine takes part.
#include <utility>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build_kernel_copies(const Case& c) {
  Program program = one_copy(c, {c.src, c.dst, c.src_memory, c.dst_memory});
  if (c.param("bidirectional", "false") == "true") {
    Case back = c;
    std::swap(back.src, back.dst);
    std::swap(back.src_memory, back.dst_memory);
    add_copy(program, back, {back.src, back.dst, back.src_memory, back.dst_memory}, stream_of(back));
  }
  return program;
}

std::vector<Param> params(Engine engine, bool two_gpus, bool bidirectional, bool within_gpus) {
  std::vector<Param> all{mode_param(), blocks_param()};
  if (engine == Engine::sm) all.push_back(threads_param());
  if (two_gpus) all.push_back(initiator_param());
  if (bidirectional) all.push_back(bidirectional_param());
  if (within_gpus) all.push_back(l2_param());
  all.insert(all.end(), {clock_param(), idle_param()});
  return all;
}

}  // namespace

std::vector<Benchmark> kernel_copies() {
  const std::pair pinned{MemKind::pinned, MemKind::device}, registered{MemKind::registered, MemKind::device};
  const std::pair to_pinned{MemKind::device, MemKind::pinned}, to_registered{MemKind::device, MemKind::registered};
  const std::pair within{MemKind::device, MemKind::device};
  using enum PlaceKind;
  std::vector<Benchmark> rows;
  for (const Engine engine : {Engine::sm, Engine::tma}) {
    const bool sm = engine == Engine::sm;
    const auto* source = sm ? "nvbandwidth *_memcpy_sm"
                            : "CUDA programming guide: Tensor Memory Accelerator, TMA (compute capability 9.0)";
    const auto add = [&](const char* name, const char* summary, PlaceKind src, PlaceKind dst, Relation relation,
                         const auto& memories) {
      rows.push_back(
          {name, summary, source, engine, src, dst, relation, memories,
           params(engine, relation == Relation::different, src == numa || relation == Relation::different, src == dst),
           build_kernel_copies});
    };
    using Memories = std::vector<std::pair<MemKind, MemKind>>;
    add("h2d", sm ? "GPU threads copy host memory into GPU memory" : "TMA copies host memory into GPU memory", numa,
        gpu, Relation::any, Memories{pinned, registered});
    add("d2h", sm ? "GPU threads copy GPU memory into host memory" : "TMA copies GPU memory into host memory", gpu,
        numa, Relation::any, Memories{to_pinned, to_registered});
    add("d2d", sm ? "GPU threads copy between two GPUs, push or pull" : "TMA copies between two GPUs, push or pull",
        gpu, gpu, Relation::different, Memories{within});
    add("local", sm ? "GPU threads copy within their GPU's memory" : "TMA copies within one GPU's memory", gpu, gpu,
        Relation::same, Memories{within});
  }
  return rows;
}

}  // namespace linkscope
