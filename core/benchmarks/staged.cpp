// Jorda et al. (JO-2, JO-5, JO-6): copies through pinned memory in chunks, also from and to files. One actor fills the
// slots of a ring and another one empties them, so that both legs overlap if there are at least two. A whole transfer
// in one chunk is staging without overlap.
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "benchmarks/chunks.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;

/// The ends of one staged copy, and where its ring is.
struct Staging {
  Place src, dst, ring;
  MemKind src_memory, dst_memory;
  u64 chunk;
  u32 threads;
};

Engine engine_at(const Place& end) {
  return end.kind == PlaceKind::gpu ? Engine::ce : end.kind == PlaceKind::disk ? Engine::file : Engine::cpu;
}

Actor filler_or_emptier(const Place& end, const Place& ring, std::vector<Step> loop) {
  Actor actor;
  actor.place = end.kind == PlaceKind::gpu ? end : ring;
  actor.kind = end.kind == PlaceKind::gpu ? ActorKind::stream : ActorKind::cpu_thread;
  actor.clock = Clock::host;  // host threads exchange the words of both
  if (end.kind == PlaceKind::gpu) actor.cpu = ring;
  actor.loop = std::move(loop);
  return actor;
}

/// Adds the memory of a staged copy, and its two actors. Returns the flow of the whole copy and that of its first leg.
std::pair<Flow, Flow> add_staged(Program& program, const Case& c, const Staging& staging) {
  const u64 stride = slice_stride(staging.chunk), chunks_of_copy = c.bytes / staging.chunk;
  const auto slots = c.number("slots", "2");
  const auto slices = static_cast<u32>(slice_count(c.bytes, c.footprint_bytes, c.engine) * chunks_of_copy);
  const auto first = static_cast<u32>(program.regions.size());
  program.regions.push_back(completed(c, {staging.src, staging.src_memory, slices * stride, Content::pattern}));
  program.regions.push_back({staging.ring, MemKind::pinned, slots * stride, Content::poison});
  program.regions.push_back(completed(c, {staging.dst, staging.dst_memory, slices * stride, Content::poison}));
  program.regions.push_back({staging.ring, MemKind::pinned, 2 * line_bytes, Content::zero});

  const Span source{first, 0, staging.chunk, stride, slices}, slot{first + 1, 0, staging.chunk, stride, slots},
      target{first + 2, 0, staging.chunk, stride, slices};
  const Span filled{first + 3, 0, word_bytes}, emptied{first + 3, line_bytes, word_bytes};
  const auto copy = [&](const Place& end, const Span& from, const Span& to) {
    Move move{from, to, engine_at(end)};
    if (move.engine == Engine::cpu) move.shape = {1, staging.threads};
    if (move.engine == Engine::file) move.shape = file_shape(c);
    return move;
  };
  const Seconds timeout = chunk_timeout(staging.chunk);
  const auto actor = static_cast<u32>(program.actors.size());
  // The first `slots` chunks wait for no slot.
  program.actors.push_back(filler_or_emptier(
      staging.src, staging.ring,
      {Wait{emptied, 1 - u64{slots}, 1, timeout}, copy(staging.src, source, slot), Set{filled, 1, 1}}));
  program.actors.push_back(filler_or_emptier(
      staging.dst, staging.ring, {Wait{filled, 1, 1, timeout}, copy(staging.dst, slot, target), Set{emptied, 1, 1}}));
  constexpr bool measured = true;
  constexpr u64 bytes_of_leg = 0;  // the flow of the whole copy counts them
  return {{actor + 1, staging.src, staging.dst, staging.src_memory, staging.dst_memory, c.bytes, measured},
          {actor, staging.src, staging.ring, staging.src_memory, MemKind::pinned, bytes_of_leg, !measured}};
}

/// The node of the host memory; without host memory that of the parameter.
Place ring_of(const Case& c) {
  if (c.src.kind == PlaceKind::numa) return c.src;
  if (c.dst.kind == PlaceKind::numa) return c.dst;
  Place ring = parse_place(c.param("ring", "numa:0"));
  ring.host = c.src.host;
  return ring;
}

Program build_staged(const Case& c) {
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  const Staging there{c.src, c.dst, ring_of(c), c.src_memory, c.dst_memory, chunk_bytes(c), c.number("threads", "1")};
  program.passes = static_cast<u32>(c.bytes / there.chunk);
  const auto [whole, leg] = add_staged(program, c, there);
  program.flows = {whole};
  if (c.param("bidirectional", "false") == "true") {
    if (c.src == c.dst) throw Error{ErrorKind::usage, c.benchmark + ": bidirectional needs two different places"};
    const auto back =
        add_staged(program, c, {c.dst, c.src, there.ring, c.dst_memory, c.src_memory, there.chunk, there.threads});
    program.flows.insert(program.flows.end(), {back.first, leg, back.second});
  } else {
    program.flows.push_back(leg);
  }
  return program;
}

}  // namespace

std::vector<Benchmark> staged_copies() {
  using enum PlaceKind;
  using enum MemKind;
  const std::vector<Param> of_ring{
      mode_param(),
      chunk_param("bytes that fill a slot; whole: the copy goes through one slot of its size"),
      {"slots", {"2", "1", "3", "4", "8"}, "pinned slots: with at least two, both legs overlap"}};
  std::vector<Benchmark> rows;
  const auto add = [&](std::string_view summary, PlaceKind src, PlaceKind dst,
                       std::vector<std::pair<MemKind, MemKind>> memories, std::vector<Param> more) {
    auto params = of_ring;
    params.insert(params.end(), more.begin(), more.end());
    params.push_back(bidirectional_param());
    const bool of_file = src == disk || dst == disk;
    if (of_file) params.insert(params.end(), {file_cache_param(), depth_param()});
    rows.push_back({of_file ? "file_copies" : "staged", summary,
                    of_file ? "Jorda et al., disks" : "Jorda et al. (JO-2, JO-6)", of_file ? Engine::file : Engine::ce,
                    src, dst, src == dst ? Relation::different : Relation::any, std::move(memories), std::move(params),
                    build_staged});
  };
  const Param threads{"threads", {"1", "2", "4", "8", "16"}, "CPU threads that share the copy of a chunk"};
  add("a copy from host memory to a GPU through pinned slots that CPU threads fill", numa, gpu,
      {{pageable, device}, {pinned, device}}, {threads});
  add("a copy from a GPU to host memory through pinned slots that CPU threads empty", gpu, numa,
      {{device, pageable}, {device, pinned}}, {threads});
  const Param ring{"ring", {"numa:0", "numa:1", "numa:2", "numa:3"}, "NUMA node of the pinned slots"};
  add("a copy between GPUs through pinned slots, without peer access", gpu, gpu, {{device, device}}, {ring});
  add("a file, read chunk by chunk into pinned slots and copied to a GPU", disk, gpu, {{file, device}}, {ring});
  add("a GPU's memory, copied to pinned slots and written chunk by chunk to a file", gpu, disk, {{device, file}},
      {ring});
  return rows;
}

}  // namespace linkscope
