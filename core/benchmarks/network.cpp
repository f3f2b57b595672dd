// Jorda et al. (JO-4, JO-15) and Spafford et al. (SP-3): copies from one host to another by network cards, directly from and
// to the memory at both ends, or through pinned slots of both hosts. Three actors then work at once: one fills a slot, a
// thread sends it, one empties the slot on the other host. A whole transfer in one chunk is staging without overlap.
#include <array>

#include "base/error.hpp"
#include "benchmarks/chunks.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;

/// The NUMA node of an end's thread and slots: that of its memory, otherwise that of the parameter.
Place node_of(const Case& c, const Place& end, const std::string& param) {
  if (end.kind == PlaceKind::numa) return end;
  Place numa = parse_place(c.param(param, "numa:0"));
  numa.host = end.host;
  return numa;
}

Program direct(const Case& c) {
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  Actor thread{node_of(c, c.src, "src_numa"), ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, std::move(thread));
  return program;
}

/// The regions of words that actors set and wait for, each pair on the host that waits.
struct Words {
  Span filled, sent, arrived, emptied;
};

Words add_words(Program& program, const Place& sender, const Place& receiver) {
  const auto first = static_cast<u32>(program.regions.size());
  program.regions.push_back({sender, MemKind::pinned, 3 * line_bytes, Content::zero});
  program.regions.push_back({receiver, MemKind::pinned, line_bytes, Content::zero});
  return {{first, 0, word_bytes},
          {first, line_bytes, word_bytes},
          {first + 1, 0, word_bytes},
          {first, 2 * line_bytes, word_bytes}};
}

Program staged(const Case& c) {
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  const Place sender = node_of(c, c.src, "src_numa"), receiver = node_of(c, c.dst, "dst_numa");
  const u64 chunk = chunk_bytes(c), stride = slice_stride(chunk);
  program.passes = static_cast<u32>(c.bytes / chunk);
  const auto slots = c.number("slots", "2");
  const auto slices = slice_count(c.bytes, c.footprint_bytes, c.engine) * program.passes;
  const bool from_gpu = c.src.kind == PlaceKind::gpu, to_gpu = c.dst.kind == PlaceKind::gpu;
  const auto add = [&](const Place& at, MemKind kind, u32 count, Content content) {
    program.regions.push_back(completed(c, {at, kind, count * stride, content}));
    return Span{static_cast<u32>(program.regions.size() - 1), 0, chunk, stride, count};
  };
  const Span source = add(c.src, c.src_memory, slices, Content::pattern);
  const Span target = add(c.dst, c.dst_memory, slices, Content::poison);
  const Span near = from_gpu ? add(sender, MemKind::pinned, slots, Content::poison) : source;
  const Span far = to_gpu ? add(receiver, MemKind::pinned, slots, Content::poison) : target;
  const auto words = add_words(program, sender, receiver);
  const Seconds timeout = chunk_timeout(chunk);
  const u64 no_slot = 1 - u64{slots};  // the first `slots` chunks wait for no slot

  Actor thread{sender, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  if (from_gpu) thread.loop.emplace_back(Wait{words.filled, 1, 1, timeout});
  if (to_gpu) thread.loop.emplace_back(Wait{words.emptied, no_slot, 1, timeout});
  thread.loop.emplace_back(Move{near, far, Engine::nic});
  if (from_gpu) thread.loop.emplace_back(Set{words.sent, 1, 1});
  if (to_gpu) thread.loop.emplace_back(Set{words.arrived, 1, 1});
  const u32 measured = to_gpu ? 1 : 0;
  program.actors.push_back(std::move(thread));
  if (to_gpu)
    program.actors.push_back(
        stream_at(c.dst, receiver,
                  {Wait{words.arrived, 1, 1, timeout}, Move{far, target, Engine::ce}, Set{words.emptied, 1, 1}}));
  if (from_gpu)
    program.actors.push_back(
        stream_at(c.src, sender,
                  {Wait{words.sent, no_slot, 1, timeout}, Move{source, near, Engine::ce}, Set{words.filled, 1, 1}}));
  program.flows = {{measured, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes}};
  constexpr u64 bytes_of_leg = 0;  // the flow of the whole copy counts them
  for (u32 actor = 0; actor < program.actors.size(); ++actor)
    if (actor != measured)
      program.flows.push_back({actor, c.src, c.dst, c.src_memory, c.dst_memory, bytes_of_leg, false});
  return program;
}

}  // namespace

std::vector<Benchmark> network_copies() {
  using enum PlaceKind;
  using enum MemKind;
  constexpr bool in_id = true;
  const auto numa_of = [](std::string_view name, std::string_view help) {
    return Param{name, {"numa:0", "numa:1", "numa:2", "numa:3"}, help, in_id};
  };
  const Param src_numa = numa_of("src_numa", "NUMA node of the thread that sends, and of its slots");
  const Param dst_numa = numa_of("dst_numa", "NUMA node of the slots on the receiving host");
  const Param chunk = chunk_param("bytes of a message; whole: one message, through one slot of its size");
  const Param slots{
      "slots", {"2", "1", "3", "4", "8"}, "pinned slots at each GPU: with at least two, the legs overlap"};
  std::vector<Benchmark> rows;
  for (const auto& [src, dst] : {std::pair{numa, numa}, {numa, gpu}, {gpu, numa}, {gpu, gpu}}) {
    const std::vector<std::pair<MemKind, MemKind>> memories{
        {src == gpu ? device : pinned, dst == gpu ? device : pinned}};
    std::vector<Param> ends{mode_param()};
    if (src == gpu) ends.push_back(src_numa);
    rows.push_back({"network", "a copy to another host by network cards, which reach the memory at both ends",
                    "Jorda et al. (JO-4), Spafford et al. (SP-3)", Engine::nic, src, dst, Relation::other_host,
                    memories, ends, direct});
    rows.back().suites = {{"quick", {8, 64_MiB}}, {"standard", {8, 64_KiB, 64_MiB}}};
    if (src == numa && dst == numa) continue;
    if (dst == gpu) ends.push_back(dst_numa);
    ends.push_back(chunk);
    ends.push_back(slots);
    rows.push_back({"network_staged", "a copy to another host through pinned slots near the GPUs, chunk by chunk",
                    "Jorda et al. (JO-4, JO-15)", Engine::nic, src, dst, Relation::other_host, memories, ends, staged});
  }
  return rows;
}

}  // namespace linkscope
