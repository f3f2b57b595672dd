// Copies from a GPU to untouched host memory, as in a program that allocates a new array for each result. The first store to
// each page causes a page fault, and the kernel clears the page. The driver's thread pays for that, or the threads that empty
// a ring.
#include "base/error.hpp"
#include "benchmarks/chunks.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u32 slots = 2;  // both legs overlap

/// No page belongs to two copies, so that each copy is the first to touch its own.
Case with_fresh_pages(Case c) {
  const u64 page = c.dst_memory == MemKind::hugepage ? u64{2} << 20 : u64{4} << 10;
  if (c.bytes % page != 0)
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) + " B are no whole pages of " +
                                      bytes_text(page) + "; each copy has pages of its own"};
  c.params["cache"] = "fresh";
  c.params.emplace("chunk", "4MiB");
  c.params["pages"] = "transparent";
  return c;
}

/// One call of the driver.
Program build_plain(const Case& given) {
  Program program = one_copy(with_fresh_pages(given), {given.src, given.dst, given.src_memory, given.dst_memory});
  for (auto& actor : program.actors) actor.clock = Clock::host;
  program.held_by = HeldBy::nothing;
  return program;
}

/// The copy engine fills the slots of a ring, and CPU threads empty them.
Program build_ring(const Case& given) {
  const Case c = with_fresh_pages(given);
  Program program = empty_program(c);
  program.held_by = HeldBy::nothing;
  const u64 chunk = chunk_bytes(c), stride = slice_stride(chunk);
  program.passes = static_cast<u32>(c.bytes / chunk);
  const u32 copies = slice_count(c.bytes, c.footprint_bytes, Engine::ce), slices = copies * program.passes;
  program.most_iterations = copies;  // a page is untouched once
  program.regions.push_back(completed(c, {c.src, c.src_memory, slices * stride, Content::pattern}));
  program.regions.push_back({c.dst, MemKind::pinned, slots * stride, Content::poison});
  program.regions.push_back(completed(c, {c.dst, c.dst_memory, slices * stride, Content::poison}));
  program.regions.push_back({c.dst, MemKind::pinned, 2 * line_bytes, Content::zero});
  const Span source{0, 0, chunk, stride, slices}, slot{1, 0, chunk, stride, slots}, target{2, 0, chunk, stride, slices};
  const Span filled{3, 0, word_bytes}, emptied{3, line_bytes, word_bytes};
  const Seconds timeout = chunk_timeout(chunk);

  Actor stream = stream_of(c), threads{c.dst, ActorKind::cpu_thread, Clock::host, {}, 0, {}, {}};
  stream.clock = Clock::host;  // host threads exchange the words
  Move emptying{slot, target, Engine::cpu};
  emptying.shape = {1, c.number("threads", "8")};
  // The first `slots` chunks wait for no slot.
  stream.loop = {Wait{emptied, 1 - u64{slots}, 1, timeout}, Move{source, slot, Engine::ce}, Set{filled, 1, 1}};
  threads.loop = {Wait{filled, 1, 1, timeout}, emptying, Set{emptied, 1, 1}};
  program.actors = {stream, threads};
  constexpr bool measured = true;
  program.flows = {{1, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes, measured},
                   {0, c.src, c.dst, c.src_memory, MemKind::pinned, 0, !measured}};
  return program;
}

}  // namespace

std::vector<Benchmark> fresh_copies() {
  using enum MemKind;
  const Param chunk{"chunk", {"4MiB", "1MiB", "2MiB", "256KiB"}, "bytes that fill a slot"};
  const Param threads{"threads", {"8", "1", "2", "4", "16"}, "CPU threads that share the copy of a chunk"};
  const auto row = [](std::string_view name, std::string_view summary, std::vector<Param> params,
                      Program (*build)(const Case&)) {
    return Benchmark{name,
                     summary,
                     "Linux: transparent huge pages, first touch",
                     Engine::ce,
                     PlaceKind::gpu,
                     PlaceKind::numa,
                     Relation::any,
                     {{device, pageable}, {device, hugepage}},
                     std::move(params),
                     build};
  };
  return {
      row("fresh", "a copy from a GPU to host memory that nobody has touched, with and without huge pages, by one call",
          {mode_param()}, build_plain),
      row("fresh_staged", "the same through pinned slots that CPU threads empty", {mode_param(), chunk, threads},
          build_ring)};
}

}  // namespace linkscope
