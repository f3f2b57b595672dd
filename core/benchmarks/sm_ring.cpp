// Copies of pageable memory through pinned slots that a kernel empties or fills: one launch for the whole copy, as
// core/transfer does for sizes at which a driver call for each chunk costs too much. Each block has slots of its own, and
// each CPU thread serves as many blocks as the others.
#include <algorithm>

#include "base/error.hpp"
#include "benchmarks/chunks.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u64 granule = 16;  // bytes of a GPU block's access
constexpr u32 block_threads = 1024;

/// The shape of a copy: a pass moves one chunk by each block.
struct Shares {
  u32 blocks, threads, slots;
  u64 chunk;

  explicit Shares(const Case& c)
      : blocks{c.number("sms", "16")},
        threads{std::min(c.number("threads", "8"), blocks)},
        slots{c.number("slots", "2")},
        chunk{0} {
    Case part = c;
    part.bytes = c.bytes / blocks;
    part.params.emplace("chunk", "64KiB");
    if (c.bytes % blocks == 0 && part.bytes % granule == 0 && part.bytes > 0) chunk = chunk_bytes(part);
    if (chunk == 0)
      throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) + " B cannot be divided into " +
                                        std::to_string(blocks) + " equal parts of whole " + std::to_string(granule) +
                                        " B, one for each block"};
  }
};

class Ring {
 public:
  Ring(Program& program, const Case& c)
      : program_{program},
        case_{c},
        share_{c},
        to_gpu_{c.dst.kind == PlaceKind::gpu},
        host_{to_gpu_ ? c.src : c.dst},
        stride_{slice_stride(share_.chunk)} {
    program.passes = static_cast<u32>(c.bytes / share_.blocks / share_.chunk);
    slices_ = static_cast<u32>(slice_count(c.bytes, c.footprint_bytes, Engine::ce) * program.passes);
    const u64 all = u64{share_.blocks} * slices_ * stride_;
    source_ = add({c.src, c.src_memory, all, Content::pattern});
    ring_ = add({host_, MemKind::pinned, u64{share_.blocks} * share_.slots * stride_, Content::poison});
    target_ = add({c.dst, c.dst_memory, all, Content::poison});
    words_ = add({host_, MemKind::pinned, u64{2} * share_.blocks * line_bytes, Content::zero});
    for (u32 thread = 0; thread < share_.threads; ++thread) add_thread(thread);
    for (u32 block = 0; block < share_.blocks; ++block) add_block(block);
  }

 private:
  u32 add(const Region& region) {
    program_.regions.push_back(completed(case_, region));
    return static_cast<u32>(program_.regions.size() - 1);
  }
  [[nodiscard]] Span data(u32 region, u32 block) const {
    return {region, u64{block} * slices_ * stride_, share_.chunk, stride_, slices_};
  }
  [[nodiscard]] Span slot(u32 block) const {
    return {ring_, u64{block} * share_.slots * stride_, share_.chunk, stride_, share_.slots};
  }
  [[nodiscard]] Span at_word(u32 block, bool filled) const {
    return {words_, (2 * block + filled) * line_bytes, word_bytes};
  }
  /// The first `slots` chunks of a block wait for no slot.
  [[nodiscard]] std::vector<Step> leg(u32 block, bool fills, Engine engine) const {
    const Seconds timeout = chunk_timeout(share_.chunk);
    const Span from = fills ? data(source_, block) : slot(block), to = fills ? slot(block) : data(target_, block);
    return {Wait{at_word(block, !fills), fills ? 1 - u64{share_.slots} : 1, 1, timeout}, Move{from, to, engine},
            Set{at_word(block, fills), 1, 1}};
  }
  void add_thread(u32 thread) {
    Actor actor{host_, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
    u64 bytes = 0;
    for (u32 block = thread; block < share_.blocks; block += share_.threads) {
      const auto steps = leg(block, to_gpu_, Engine::cpu);
      actor.loop.insert(actor.loop.end(), steps.begin(), steps.end());
      bytes += case_.bytes / share_.blocks;
    }
    add_actor(std::move(actor), to_gpu_ ? 0 : bytes);
  }
  /// All blocks start and end as one kernel, so the time of the first is that of the copy.
  void add_block(u32 block) {
    Actor actor;
    actor.place = to_gpu_ ? case_.dst : case_.src;
    actor.kind = ActorKind::gpu_block;
    actor.threads = block_threads;
    actor.grid = 0;
    actor.loop = leg(block, !to_gpu_, Engine::sm);
    add_actor(std::move(actor), to_gpu_ && block == 0 ? case_.bytes : 0);
  }
  void add_actor(Actor actor, u64 bytes) {
    const Flow flow{static_cast<u32>(program_.actors.size()),
                    case_.src,
                    case_.dst,
                    case_.src_memory,
                    case_.dst_memory,
                    bytes,
                    bytes > 0};
    // The first flow of a program is measured.
    const auto measured =
        std::find_if(program_.flows.begin(), program_.flows.end(), [](const Flow& one) { return !one.measured; });
    program_.flows.insert(bytes > 0 ? measured : program_.flows.end(), flow);
    program_.actors.push_back(std::move(actor));
  }

  Program& program_;
  const Case& case_;
  Shares share_;
  bool to_gpu_;
  Place host_;
  u64 stride_;
  u32 slices_ = 0, source_ = 0, ring_ = 0, target_ = 0, words_ = 0;
};

Program build_sm_ring(const Case& c) {
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  const Ring ring(program, c);
  return program;
}

}  // namespace

std::vector<Benchmark> sm_rings() {
  using enum PlaceKind;
  using enum MemKind;
  Param chunk{
      "chunk", {"64KiB", "128KiB", "256KiB", "512KiB", "1MiB"}, "bytes that fill a slot, or less in a short copy"};
  const std::vector<Param> params{
      mode_param(),
      chunk,
      {"slots", {"2", "1", "4"}, "pinned slots of each block: with at least two, both legs overlap"},
      {"sms", {"16", "8", "32", "64"}, "blocks of the kernel, each with slots of its own"},
      {"threads", {"8", "1", "2", "4", "16"}, "CPU threads, each of which serves as many blocks"}};
  const auto row = [&](const char* summary, PlaceKind src, PlaceKind dst, std::pair<MemKind, MemKind> memories) {
    return Benchmark{"staged",      summary,    "CUDA: kernels that read pinned memory",
                     Engine::sm,    src,        dst,
                     Relation::any, {memories}, params,
                     build_sm_ring};
  };
  return {row("a copy to a GPU through pinned slots that CPU threads fill and one kernel empties", numa, gpu,
              {pageable, device}),
          row("a copy from a GPU through pinned slots that one kernel fills and CPU threads empty", gpu, numa,
              {device, pageable})};
}

}  // namespace linkscope
