// Comm|Scope 3.3 (CS-5, CS-6), nvbandwidth 0.10's read-only and write-only kernels: SMs read or write memory without
// copying it: their GPU's own, a peer's or the host's (zero-copy); contiguous, strided or random. The paper uses
// blocks=256, threads=256, width=4.
#include <utility>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u64 line = 128;  // of a GPU's caches

/// The accesses of one iteration: all bytes, or the first `width` bytes of every `stride`.
Access access_of(const Case& c, Access::Dir dir) {
  const u64 spacing = slice_stride(c.bytes);
  Access access{{0, 0, c.bytes, spacing, slice_count(c.bytes, c.footprint_bytes, c.engine)}, dir};
  access.width = c.number("width", "16");
  const bool random = c.param("order", "linear") == "random";
  const auto stride = c.param("stride", "none");
  if (stride == "none" && !random) {
    if (access.width != 16) access.stride = access.width;
    return access;
  }
  access.pattern = random ? Access::Pattern::random : Access::Pattern::strided;
  access.stride = stride == "none" ? line : std::stoul(stride);
  if (c.bytes < access.width)
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) + " B hold no access of " +
                                      std::to_string(access.width) + " B; ask for more bytes or a smaller width"};
  return access;
}

/// One direction: `by` reads memory at `src`, or writes it at `dst`.
Program unidirectional(const Case& c, Access::Dir dir) {
  const bool reads = dir == Access::Dir::read;
  Access access = access_of(c, dir);
  // docs/notes/counters.md has the counts.
  if (!reads && c.dst.kind == PlaceKind::gpu && c.src != c.dst) access.unit = peer_write_bytes;
  Kernel kernel{reads ? KernelId::read : KernelId::write, kernel_shape(c), 0, {access}};
  const u64 bytes = access.span.stride * access.span.slices;
  Program program = reads ? one_sided(c, {c.src, c.src_memory, bytes, Content::pattern}, c.dst, std::move(kernel))
                          : one_sided(c, {c.dst, c.dst_memory, bytes, Content::poison}, c.src, std::move(kernel));
  program.flows[0].bytes = asked_bytes(access);
  program.cache = empty_program(c).cache;
  return program;
}

/// The opposite direction: with two GPUs the other one does the same; host memory is read and written.
Program bidirectional(const Case& c, Access::Dir dir) {
  const bool peers = c.src.kind == c.dst.kind;
  if (c.src == c.dst)
    throw Error{ErrorKind::usage,
                c.benchmark + ": within " + to_string(c.src) + ", " + "bidirectional needs two different places"};
  Case back = c;
  std::swap(back.src, back.dst);
  std::swap(back.src_memory, back.dst_memory);
  using enum Access::Dir;
  return together({unidirectional(c, dir), unidirectional(back, peers ? dir : dir == read ? write : read)});
}

Program build(const Case& c, Access::Dir dir) {
  return c.param("bidirectional", "false") == "true" ? bidirectional(c, dir) : unidirectional(c, dir);
}
Program build_read(const Case& c) { return build(c, Access::Dir::read); }
Program build_write(const Case& c) { return build(c, Access::Dir::write); }

/// The parameters of SM copies, and the paper's shape.
std::vector<Param> params(bool between_gpus, bool bidirectional) {
  constexpr bool default_in_id = false;
  Param blocks = blocks_param();
  blocks.values.push_back("256");
  std::vector<Param> all{
      std::move(blocks),
      threads_param(),
      {"width", {"16", "8", "4"}, "bytes that a thread moves with one access", default_in_id},
      {"stride",
       {"none", "32", "64", "128", "256", "512", "1024", "4096"},
       "bytes from the start of one access to the next; none: all bytes are accessed",
       default_in_id},
      {"order",
       {"linear", "random"},
       "linear: neighbouring threads access neighbouring bytes; random: each stride, or each 128 bytes, is "
       "accessed once in a seeded random order",
       default_in_id}};
  if (between_gpus) all.push_back(l2_param());
  if (bidirectional) {
    all.push_back(bidirectional_param());
    all.back().default_in_id = default_in_id;
    all.back().help =
        between_gpus ? "the other GPU does the same concurrently" : "the GPU writes host memory concurrently";
  }
  return all;
}

}  // namespace

std::vector<Benchmark> kernel_accesses() {
  using enum PlaceKind;
  using enum MemKind;
  using Memories = std::vector<std::pair<MemKind, MemKind>>;
  const auto row = [](const char* name, const char* summary, PlaceKind src, PlaceKind dst, const Memories& memories,
                      bool bidirectional, Program (*build)(const Case&)) {
    const auto* source = "Comm|Scope 3.3 (CS-5, CS-6), nvbandwidth 0.10 read-only and write-only kernels";
    return Benchmark{
        name, summary, source, Engine::sm, src, dst, Relation::any, memories, params(src == dst, bidirectional), build};
  };
  return of_role(Role::access, {
                                   row("read", "GPU threads read host memory", numa, gpu,
                                       {{pinned, device}, {registered, device}}, true, build_read),
                                   row("read", "GPU threads read GPU memory, their own or a peer's", gpu, gpu,
                                       {{device, device}}, true, build_read),
                                   row("write", "GPU threads write host memory", gpu, numa,
                                       {{device, pinned}, {device, registered}}, false, build_write),
                                   row("write", "GPU threads write GPU memory, their own or a peer's", gpu, gpu,
                                       {{device, device}}, true, build_write),
                               });
}

}  // namespace linkscope
