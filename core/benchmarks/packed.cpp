// Scattered pieces of pageable memory: CPU threads pack them into pinned slots, or take them out, and a kernel does the
// same on the GPU's side. So core/transfer moves blocks of a paged cache whose store is not pinned.
#include <algorithm>

#include "base/error.hpp"
#include "benchmarks/chunks.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u32 kernel_threads = 512;

/// The pieces of a slot: the largest whole part of all pieces that fits it.
u64 pieces_of_slot(const Case& c, u64 piece) {
  const u64 count = c.bytes / piece;
  if (c.bytes % piece != 0 || count < 2)
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) +
                                      " B is not a whole number (2 or more) of pieces of " + std::to_string(piece) +
                                      " B; 1000 of them are " + std::to_string(1000 * piece) + " B"};
  Case slot = c;
  slot.bytes = u64{64} << 20;  // a multiple of each chunk
  u64 fitting = std::clamp<u64>(chunk_bytes(slot) / piece, 1, count);
  while (count % fitting != 0) --fitting;
  return fitting;
}

Program build_packed(const Case& c) {
  const bool to_gpu = c.dst.kind == PlaceKind::gpu;
  const Place &host = to_gpu ? c.src : c.dst, &gpu = to_gpu ? c.dst : c.src;
  const u64 piece = std::stoull(c.param("piece", "4096")), of_slot = pieces_of_slot(c, piece), chunk = of_slot * piece;
  const u32 slots = c.number("slots", "2");
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  program.passes = static_cast<u32>(c.bytes / chunk);

  const Rows apart{piece, slice_stride(piece) + slice_stride(1)};  // no two are neighbours
  const u64 stride = of_slot * apart.pitch;
  const u32 slices = slice_count(c.bytes, c.footprint_bytes, c.engine) * program.passes;
  program.regions.push_back(completed(c, {c.src, c.src_memory, slices * stride, Content::pattern}));
  program.regions.push_back({host, MemKind::pinned, slots * slice_stride(chunk), Content::poison});
  program.regions.push_back(completed(c, {c.dst, c.dst_memory, slices * stride, Content::poison}));
  program.regions.push_back({host, MemKind::pinned, 2 * line_bytes, Content::zero});
  const Span source{0, 0, chunk, stride, slices, apart}, slot{1, 0, chunk, slice_stride(chunk), slots},
      target{2, 0, chunk, stride, slices, apart};
  const Span filled{3, 0, word_bytes}, emptied{3, line_bytes, word_bytes};

  Actor thread{host, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}}, stream;
  stream.place = gpu;
  stream.clock = Clock::host;  // host threads exchange the words
  stream.cpu = host;
  const auto copy = [&](const Span& from, const Span& to, bool by_gpu) {
    Move move{from, to, by_gpu ? Engine::sm : Engine::cpu};
    move.shape = by_gpu ? Shape{c.number("sms", "32"), kernel_threads} : Shape{1, c.number("threads", "8")};
    return move;
  };
  const Seconds timeout = chunk_timeout(chunk);
  Actor &filler = to_gpu ? thread : stream, &emptier = to_gpu ? stream : thread;
  // The first `slots` chunks wait for no slot.
  filler.loop = {Wait{emptied, 1 - u64{slots}, 1, timeout}, copy(source, slot, !to_gpu), Set{filled, 1, 1}};
  emptier.loop = {Wait{filled, 1, 1, timeout}, copy(slot, target, to_gpu), Set{emptied, 1, 1}};
  constexpr bool measured = true;
  program.flows = {{1, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes, measured},
                   {0, c.src, c.dst, c.src_memory, c.dst_memory, 0, !measured}};
  program.actors = {filler, emptier};
  return program;
}

}  // namespace

std::vector<Benchmark> packed_pieces() {
  using enum PlaceKind;
  using enum MemKind;
  const std::vector<Param> params{
      mode_param(),
      {"piece", {"4096", "64", "512", "65536"}, "bytes of a piece"},
      {"chunk", {"1MiB", "256KiB", "4MiB"}, "bytes that fill a slot, or less so that all slots are equal"},
      {"slots", {"2", "1", "4"}, "pinned slots: with at least two, both legs overlap"},
      {"sms", {"32", "16", "64"}, "blocks of the kernel on the GPU's side"},
      {"threads", {"8", "1", "2", "4", "16"}, "CPU threads that share the pieces of a slot"}};
  const auto row = [&](const char* summary, PlaceKind src, PlaceKind dst, std::pair<MemKind, MemKind> memories) {
    return Benchmark{
        "pieces", summary,     "CUDA 13.0: cuMemcpyBatchAsync", Engine::sm, src, dst, Relation::any, {memories},
        params,   build_packed};
  };
  return {row("scattered pieces of pageable memory, packed in pinned slots and spread by a kernel", numa, gpu,
              {pageable, device}),
          row("scattered pieces, packed in pinned slots by a kernel and spread in pageable memory", gpu, numa,
              {device, pageable})};
}

}  // namespace linkscope
