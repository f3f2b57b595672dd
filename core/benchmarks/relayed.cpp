// One copy between host memory and a GPU over the links of several GPUs. The GPU's own link carries its part of the
// chunks, and each helper GPU carries a part through slots in its memory. The parts are equal: a program is fixed, while
// core/transfer gives each chunk to the link that is free.
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;

constexpr u64 word = sizeof(u64), line = 256;  // each word has cache lines of its own
constexpr u32 slots = 2;                       // of a helper: both legs overlap
constexpr Seconds timeout{4.0};

constexpr std::array<std::pair<std::string_view, u64>, 4> chunks{
    {{"4MiB", 4_MiB}, {"1MiB", 1_MiB}, {"2MiB", 2_MiB}, {"8MiB", 8_MiB}}};

u64 chunk_bytes(const Case& c, u64 paths) {
  const auto text = c.param("chunk", "4MiB");
  const auto found = std::find_if(chunks.begin(), chunks.end(), [&](const auto& one) { return one.first == text; });
  const u64 part = c.bytes / paths, chunk = std::min(found->second, part);
  if (chunk < word || c.bytes % paths != 0 || part % chunk != 0 || chunk % word != 0)
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

Actor stream_at(const Place& gpu, const Place& cpu, std::vector<Step> loop) {
  Actor actor;
  actor.place = gpu;
  actor.clock = Clock::host;  // host threads exchange the words
  actor.cpu = cpu;
  actor.loop = std::move(loop);
  return actor;
}

/// Adds the data of one path: the regions of its source and destination.
std::pair<Span, Span> add_ends(Program& program, const Case& c, u64 chunk) {
  const u64 stride = slice_stride(chunk);
  const auto slices = static_cast<u32>(slice_count(c.bytes, c.footprint_bytes, c.engine) * program.passes);
  const auto first = static_cast<u32>(program.regions.size());
  program.regions.push_back(completed(c, {c.src, c.src_memory, slices * stride, Content::pattern}));
  program.regions.push_back(completed(c, {c.dst, c.dst_memory, slices * stride, Content::poison}));
  return {{first, 0, chunk, stride, slices}, {first + 1, 0, chunk, stride, slices}};
}

Program build(const Case& c) {
  const bool to_gpu = c.dst.kind == PlaceKind::gpu;
  const Place &host = to_gpu ? c.src : c.dst, &gpu = to_gpu ? c.dst : c.src;
  const u64 helpers = std::stoull(c.param("helpers", "1")), chunk = chunk_bytes(c, helpers + 1);
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  program.peer = true;
  program.passes = static_cast<u32>(c.bytes / (helpers + 1) / chunk);
  const u64 part = c.bytes / (helpers + 1);
  const auto flow = [&](std::size_t actor, const Place& src, const Place& dst, bool is_measured) {
    const auto memory = [](const Place& at) { return at.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned; };
    return Flow{static_cast<u32>(actor), src, dst, memory(src), memory(dst), part, is_measured};
  };
  // The first flow is that on the GPU's own link, and its actor the last one.
  program.flows.push_back(flow(2 * helpers, c.src, c.dst, true));
  std::optional<Span> first_emptied;
  for (const Place& helper : helpers_of(gpu, helpers)) {
    const auto [source, target] = add_ends(program, c, chunk);
    const auto ring = static_cast<u32>(program.regions.size());
    program.regions.push_back({helper, MemKind::device, slots * slice_stride(chunk), Content::poison});
    program.regions.push_back({host, MemKind::pinned, 2 * line, Content::zero});
    const Span slot{ring, 0, chunk, slice_stride(chunk), slots}, filled{ring + 1, 0, word},
        emptied{ring + 1, line, word};
    program.flows.push_back(flow(program.actors.size(), c.src, helper, false));
    program.flows.push_back(flow(program.actors.size() + 1, helper, c.dst, true));
    // The first `slots` chunks wait for no slot.
    program.actors.push_back(
        stream_at(to_gpu ? helper : gpu, host,
                  {Wait{emptied, 1 - u64{slots}, 1, timeout}, Move{source, slot, Engine::ce}, Set{filled, 1, 1}}));
    program.actors.push_back(
        stream_at(to_gpu ? gpu : helper, host,
                  {Wait{filled, 1, 1, timeout}, Move{slot, target, Engine::ce}, Set{emptied, 1, 1}}));
    if (!first_emptied) first_emptied = emptied;
  }
  const auto [source, target] = add_ends(program, c, chunk);
  // The own link stays as near to the first helper's as that one's slots are to each other: all loops end together.
  program.actors.push_back(
      stream_at(gpu, host, {Wait{*first_emptied, 1 - u64{slots}, 1, timeout}, Move{source, target, Engine::ce}}));
  return program;
}

}  // namespace

std::vector<Benchmark> relayed_copies() {
  using enum PlaceKind;
  using enum MemKind;
  Param chunk{"chunk", {}, "bytes of a chunk, or less in a short copy"};
  for (const auto& [text, bytes] : chunks) chunk.values.push_back(text);
  const std::vector<Param> params{
      mode_param(),
      {"helpers", {"1", "3", "7"}, "other GPUs whose links carry parts, those with the lowest numbers"},
      chunk};
  const auto row = [&](const char* summary, PlaceKind src, PlaceKind dst, MemKind src_memory, MemKind dst_memory) {
    return Benchmark{"relayed", summary,       "CUDA: copies relayed by other GPUs", Engine::ce, src,
                     dst,       Relation::any, {{src_memory, dst_memory}},           params,     build};
  };
  return {
      row("a copy from pinned memory to a GPU, over its link and those of helper GPUs", numa, gpu, pinned, device),
      row("a copy from a GPU to pinned memory, over its link and those of helper GPUs", gpu, numa, device, pinned),
  };
}

}  // namespace linkscope
