// One copy between host memory and a GPU over the links of several GPUs. The GPU's own link carries its part of the
// chunks, and each helper GPU carries a part through slots in its memory. The parts are equal: a program is fixed, while
// core/transfer gives each chunk to the link that is free. Pageable memory goes through pinned slots too, which
// CPU threads of each link fill or empty.
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;

constexpr u32 helper_slots = 2;  // of a helper: both legs overlap
constexpr Seconds relay_timeout{4.0};

constexpr std::array<std::pair<std::string_view, u64>, 4> relayed_chunks{
    {{"4MiB", 4_MiB}, {"1MiB", 1_MiB}, {"2MiB", 2_MiB}, {"8MiB", 8_MiB}}};

u64 chunk_bytes(const Case& c, u64 paths) {
  const auto text = c.param("chunk", "4MiB");
  const auto found =
      std::find_if(relayed_chunks.begin(), relayed_chunks.end(), [&](const auto& one) { return one.first == text; });
  const u64 part = c.bytes / paths, chunk = std::min(found->second, part);
  if (chunk < word_bytes || c.bytes % paths != 0 || part % chunk != 0 || chunk % word_bytes != 0)
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) + " B cannot be divided into " +
                                      std::to_string(paths) + " equal parts of whole chunks of " + bytes_text(chunk)};
  return chunk;
}

/// The helpers: the GPUs with the lowest numbers on the host of the one whose memory is at an end.
std::vector<Place> helpers_of(const Place& gpu, u64 count) {
  std::vector<Place> found;
  Place other = gpu;
  for (other.index = 0; found.size() < count; ++other.index)
    if (other != gpu) found.push_back(other);
  return found;
}

/// Slots between two actors, and the words that say which are filled and emptied.
struct Slots {
  Span slot, filled, emptied;

  /// The first slots wait for nobody.
  [[nodiscard]] Wait until_empty() const { return {emptied, 1 - u64{helper_slots}, 1, relay_timeout}; }
  [[nodiscard]] Wait until_full() const { return {filled, 1, 1, relay_timeout}; }
};

/// Builds the parts of one copy, link by link.
class Relay {
 public:
  Relay(Program& program, const Case& c)
      : program_{program},
        case_{c},
        to_gpu_{c.dst.kind == PlaceKind::gpu},
        host_{to_gpu_ ? c.src : c.dst},
        gpu_{to_gpu_ ? c.dst : c.src},
        helpers_{std::stoull(c.param("helpers", "1"))},
        chunk_{chunk_bytes(c, helpers_ + 1)},
        part_{c.bytes / (helpers_ + 1)} {
    program.passes = static_cast<u32>(part_ / chunk_);
  }

  void add_links() {
    for (const Place& helper : helpers_of(gpu_, helpers_)) add_helper(helper);
    add_own();
    add_legs();
  }

 private:
  [[nodiscard]] bool is_pageable_copy() const { return is_pageable(to_gpu_ ? case_.src_memory : case_.dst_memory); }

  /// The source and the destination of one link.
  std::pair<Span, Span> add_ends() {
    const u64 stride = slice_stride(chunk_);
    const auto slices =
        static_cast<u32>(slice_count(case_.bytes, case_.footprint_bytes, case_.engine) * program_.passes);
    const auto first = static_cast<u32>(program_.regions.size());
    program_.regions.push_back(completed(case_, {case_.src, case_.src_memory, slices * stride, Content::pattern}));
    program_.regions.push_back(completed(case_, {case_.dst, case_.dst_memory, slices * stride, Content::poison}));
    return {{first, 0, chunk_, stride, slices}, {first + 1, 0, chunk_, stride, slices}};
  }

  Slots add_slots(const Place& at, MemKind kind) {
    const auto ring = static_cast<u32>(program_.regions.size());
    program_.regions.push_back({at, kind, helper_slots * slice_stride(chunk_), Content::poison});
    program_.regions.push_back({host_, MemKind::pinned, 2 * line_bytes, Content::zero});
    return {{ring, 0, chunk_, slice_stride(chunk_), helper_slots},
            {ring + 1, 0, word_bytes},
            {ring + 1, line_bytes, word_bytes}};
  }

  u32 add_actor(Actor actor) {
    program_.actors.push_back(std::move(actor));
    return static_cast<u32>(program_.actors.size() - 1);
  }

  /// CPU threads that move chunks between pageable memory and slots. They have the ends of the copy that is on the host.
  u32 add_threads(const Span& end, const Slots& ring) {
    Actor actor{host_, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
    Move move{to_gpu_ ? end : ring.slot, to_gpu_ ? ring.slot : end, Engine::cpu};
    move.shape = {1, case_.number("threads", "4")};
    if (to_gpu_) actor.loop = {ring.until_empty(), move, Set{ring.filled, 1, 1}};
    else actor.loop = {ring.until_full(), move, Set{ring.emptied, 1, 1}};
    return add_actor(std::move(actor));
  }

  /// A stream that moves chunks from one ring or end to another.
  u32 add_stream(const Place& by, const Span& from, const Slots* source, const Span& to, const Slots* target) {
    std::vector<Step> loop;
    if (source) loop.emplace_back(source->until_full());
    if (target) loop.emplace_back(target->until_empty());
    loop.emplace_back(Move{source ? source->slot : from, target ? target->slot : to, Engine::ce});
    if (source) loop.emplace_back(Set{source->emptied, 1, 1});
    if (target) loop.emplace_back(Set{target->filled, 1, 1});
    return add_actor(stream_at(by, host_, std::move(loop)));
  }

  void add_flow(u32 actor, const Place& src, const Place& dst, bool is_measured) {
    const auto memory = [&](const Place& at) {
      return at.kind == PlaceKind::gpu ? MemKind::device : to_gpu_ ? case_.src_memory : case_.dst_memory;
    };
    program_.flows.push_back({actor, src, dst, memory(src), memory(dst), part_, is_measured});
  }

  /// The other actors: their bytes count in the flows of the links.
  void add_legs() {
    for (u32 actor = 0; actor < program_.actors.size(); ++actor) {
      const auto is_its = [&](const Flow& flow) { return flow.actor == actor; };
      if (std::any_of(program_.flows.begin(), program_.flows.end(), is_its)) continue;
      add_flow(actor, case_.src, case_.dst, false);
      program_.flows.back().bytes = 0;
    }
  }

  void add_helper(const Place& helper) {
    const auto [source, target] = add_ends();
    const Slots ring = add_slots(helper, MemKind::device);
    if (!first_) first_ = ring;
    std::optional<Slots> staging;
    if (is_pageable_copy()) staging = add_slots(host_, MemKind::pinned);
    const Slots *in = to_gpu_ && staging ? &*staging : nullptr, *out = !to_gpu_ && staging ? &*staging : nullptr;
    std::optional<u32> threads;
    if (staging) threads = add_threads(to_gpu_ ? source : target, *staging);
    const u32 into = add_stream(to_gpu_ ? helper : gpu_, source, in, {}, &ring);
    const u32 out_of = add_stream(to_gpu_ ? gpu_ : helper, {}, &ring, target, out);
    add_flow(into, case_.src, helper, false);
    add_flow(out ? *threads : out_of, helper, case_.dst, true);
  }

  /// The own link of the GPU. Its flow is the first of the program.
  void add_own() {
    const auto [source, target] = add_ends();
    u32 last = 0;
    if (is_pageable_copy()) {
      const Slots staging = add_slots(host_, MemKind::pinned);
      last = add_threads(to_gpu_ ? source : target, staging);
      const u32 stream = add_stream(gpu_, source, to_gpu_ ? &staging : nullptr, target, to_gpu_ ? nullptr : &staging);
      if (to_gpu_) last = stream;
    } else {
      // It stays as near to the first helper's as that one's slots are to each other: all loops end together.
      last = add_actor(stream_at(gpu_, host_, {first_->until_empty(), Move{source, target, Engine::ce}}));
    }
    add_flow(last, case_.src, case_.dst, true);
    std::rotate(program_.flows.begin(), program_.flows.end() - 1, program_.flows.end());
  }

  Program& program_;
  const Case& case_;
  bool to_gpu_;
  Place host_, gpu_;
  u64 helpers_, chunk_, part_;
  std::optional<Slots> first_;  // of the first helper
};

Program build_relayed(const Case& c) {
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  program.peer = true;
  Relay{program, c}.add_links();
  return program;
}

}  // namespace

std::vector<Benchmark> relayed_copies() {
  using enum PlaceKind;
  using enum MemKind;
  Param chunk{"chunk", {}, "bytes of a chunk, or less in a short copy"};
  for (const auto& [text, bytes] : relayed_chunks) chunk.values.push_back(text);
  const std::vector<Param> params{
      mode_param(),
      {"helpers", {"1", "3", "7"}, "other GPUs whose links carry parts, those with the lowest numbers"},
      chunk};
  auto with_threads = params;
  with_threads.push_back({"threads", {"4", "1", "2", "8"}, "CPU threads of each link"});
  const auto row = [&](const char* summary, PlaceKind src, PlaceKind dst, MemKind src_memory, MemKind dst_memory) {
    const bool staged = is_pageable(src_memory) || is_pageable(dst_memory);
    return Benchmark{"relayed",
                     summary,
                     "CUDA: copies relayed by other GPUs",
                     Engine::ce,
                     src,
                     dst,
                     Relation::any,
                     {{src_memory, dst_memory}},
                     staged ? with_threads : params,
                     build_relayed};
  };
  return {
      row("a copy from pinned memory to a GPU, over its link and those of helper GPUs", numa, gpu, pinned, device),
      row("a copy from a GPU to pinned memory, over its link and those of helper GPUs", gpu, numa, device, pinned),
      row("a copy from pageable memory to a GPU by CPU threads and pinned slots, over the links of several GPUs", numa,
          gpu, pageable, device),
      row("a copy from a GPU to pageable memory by pinned slots and CPU threads, over the links of several GPUs", gpu,
          numa, device, pageable),
  };
}

}  // namespace linkscope
