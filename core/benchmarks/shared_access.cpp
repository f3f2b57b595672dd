// Comm|Scope 7 (CS-40): a GPU and CPU threads read the same memory at the same time: host memory in place (zero-copy), or
// managed memory, whose pages each side calls to itself.
#include "benchmarks/managed.hpp"

namespace linkscope {
namespace {

bool takes_part(const Case& c, const char* side) {
  const auto by = c.param("by", "both");
  return by == "both" || by == side;
}

/// Where the CPU's part of the memory begins: it is the GPU's, or follows it.
u64 apart(const Case& c) { return c.param("bytes", "same") == "same" ? 0 : slice_stride(c.bytes); }

/// The GPU reads in place; a CPU thread copies the bytes to memory of its own.
Program build_in_place(const Case& c) {
  const u64 second = apart(c), stride = slice_stride(c.bytes);
  Program program;
  program.regions.push_back({c.src, c.src_memory, stride + second, Content::pattern});
  if (takes_part(c, "gpu")) {
    const bool random = c.param("order", "linear") == "random";
    constexpr u64 line = 128;
    Access access{{0, 0, c.bytes, stride, 1}, Access::Dir::read};
    if (random) access.pattern = Access::Pattern::random, access.stride = line;
    program.flows.push_back({0, c.src, c.dst, c.src_memory, c.dst_memory, asked_bytes(access)});
    program.actors.push_back(
        {c.dst, ActorKind::stream, Clock::event, c.src, 0, {}, {Kernel{KernelId::read, kernel_shape(c), 0, {access}}}});
  }
  if (takes_part(c, "cpu")) {
    const Span from{0, second, c.bytes, stride, 1}, to{1, 0, c.bytes, stride, 1};
    program.regions.push_back({c.src, MemKind::pageable, stride, Content::poison});
    program.flows.push_back(
        {static_cast<u32>(program.actors.size()), c.src, c.src, c.src_memory, MemKind::pageable, c.bytes});
    program.actors.push_back({c.src, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {Move{from, to, Engine::cpu}}});
  }
  return program;
}

/// Each side reads the first byte of every page. Pages that the GPU has moved come back when the CPU reads them.
Program build_managed(const Case& c) {
  const u64 second = apart(c);
  Program program;
  program.regions.push_back({c.src, c.src_memory, c.bytes + second, Content::pattern});
  const auto reads = [&](u64 offset, const Shape& shape) {
    const Span span{0, offset, c.bytes, c.bytes, 1};
    return Kernel{KernelId::touch, shape, 0, {{span, Access::Dir::read, Access::Pattern::strided, 1}}};
  };
  const auto add = [&](Actor actor, Kernel kernel, const Place& by) {
    const u64 all = program.regions[0].bytes;
    actor.once.push_back(Prefetch{{0, 0, all, all, 1}, c.src});
    actor.loop.push_back(std::move(kernel));
    program.flows.push_back({static_cast<u32>(program.actors.size()), c.src, by, c.src_memory, c.src_memory, c.bytes});
    program.actors.push_back(std::move(actor));
  };
  if (takes_part(c, "gpu")) {
    constexpr Shape papers{256, 256};
    add({c.dst, ActorKind::stream, Clock::event, c.src, 0, {}, {}}, reads(0, papers), c.dst);
  }
  if (takes_part(c, "cpu"))
    add({c.src, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}}, reads(second, {1, 1}), c.src);
  program.most_iterations = 1;
  return program;
}

}  // namespace

std::vector<Benchmark> shared_accesses() {
  using enum PlaceKind;
  using enum MemKind;
  const Param by{"by", {"both", "gpu", "cpu"}, "both: at the same time; or one side alone"};
  const Param both_or_gpu{"by", {"both", "gpu"}, "both: at the same time; or the GPU alone"};
  const Param bytes{"bytes", {"same", "apart"}, "same: both read the same bytes; apart: each has its own"};
  const Param order{
      "order",
      {"linear", "random"},
      "linear: neighbouring threads of the GPU read neighbouring bytes; random: lines of 128 B in a seeded "
      "random order",
      false};
  return {{"shared_access",
           "a GPU reads host memory in place while a CPU thread reads it",
           "Comm|Scope 7 (CS-40)",
           Engine::sm,
           numa,
           gpu,
           Relation::any,
           {{pinned, device}, {registered, device}},
           {by, bytes, blocks_param(), threads_param(), order},
           build_in_place,
           true,
           Taken::by_name,
           Role::access},
          {"shared_access",
           "a GPU touches managed pages of the host while a CPU thread touches them",
           "Comm|Scope 7 (CS-40)",
           Engine::fault,
           numa,
           gpu,
           Relation::any,
           managed_memory,
           {both_or_gpu, bytes},
           build_managed,
           true,
           Taken::by_name,
           Role::migration}};
}

}  // namespace linkscope
