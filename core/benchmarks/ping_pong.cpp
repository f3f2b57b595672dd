// Comm|Scope 7 (CS-40), Klenk 4: a word goes to the other side and another word comes back. Each side polls its own
// word; an iteration is a round trip. With two processes, one of them allocates the memory of the words.
#include "base/units.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;

// Separate cache lines, and for managed memory separate migration blocks.
constexpr u64 separation = 2_MiB;

struct WordRegions {
  u32 region[2];  // of the word that the source waits for, and of the destination's
};

/// Both words in one region, or each in its own.
WordRegions add_words(Program& program, const Case& c) {
  if (c.src.kind == PlaceKind::gpu && (c.src_memory == MemKind::device || is_shared(c.src_memory))) {
    const bool at_waiter = c.param("word", "waiter") == "waiter";
    program.regions = {{c.src, c.src_memory, 2 * separation, Content::zero},
                       completed(c, {c.dst, c.dst_memory, 2 * separation, Content::zero})};
    return at_waiter ? WordRegions{{0, 1}} : WordRegions{{1, 0}};
  }
  const Place host{PlaceKind::numa, 0, c.src.host, {}};
  const Place& at = c.src_memory == MemKind::device                                   ? c.dst
                    : c.src_memory == MemKind::pinned && c.src.kind == PlaceKind::gpu ? host
                                                                                      : c.src;
  program.regions = {completed(c, {at, c.src_memory, 2 * separation, Content::zero})};
  return {{0, 0}};
}

Program build_word_ping_pong(const Case& c) {
  Program program;
  program.peer = c.src.kind == PlaceKind::gpu && c.src_memory != MemKind::pinned;
  program.cache = CacheState::hot;  // a polled word is in the memory of the side that polls
  program.mps = c.param("way", "") == "mps";
  const WordRegions words = add_words(program, c);
  const Span ping{words.region[1], 0, word_bytes, 0, 1}, pong{words.region[0], separation, word_bytes, 0, 1};
  const auto actor = [&](const Place& at, std::vector<Step> loop) {
    Actor made;
    made.place = at;
    made.kind = at.kind == PlaceKind::numa ? ActorKind::cpu_thread : ActorKind::gpu_block;
    // Events of one process do not order the work of another.
    if (at.kind == PlaceKind::numa || is_shared(c.src_memory)) made.clock = Clock::host;
    made.loop = std::move(loop);
    return made;
  };
  program.actors = {actor(c.src, {Set{ping, 1, 1}, Wait{pong, 1, 1}}),
                    actor(c.dst, {Wait{ping, 1, 1}, Set{pong, 1, 1}})};
  // Of two processes the second one drives the CPU thread, or the destination's GPU.
  if (is_shared(c.src_memory)) program.actors[c.src.kind == c.dst.kind].process = 1;
  if (c.src_memory == MemKind::managed) program.actors[0].once = {Prefetch{{0, 0, 2 * separation, 0, 1}, c.src}};
  constexpr bool measured = true;
  program.flows = {{0, c.src, c.dst, c.src_memory, c.dst_memory, 0, measured},
                   {1, c.dst, c.src, c.dst_memory, c.src_memory, 0, !measured}};
  return program;
}

}  // namespace

std::vector<Benchmark> ping_pongs() {
  using enum PlaceKind;
  using enum MemKind;
  using Memories = std::vector<std::pair<MemKind, MemKind>>;
  const Memories of_one_process{{pinned, pinned}, {device, device}, {managed, managed}}, of_two{{shm, shm}};
  const Param where{
      "word",
      {"waiter", "setter"},
      "where a word lies: with its reader (stores cross the link) or with its writer (polls cross the link)"};
  const auto row = [](const char* summary, Engine engine, PlaceKind src, PlaceKind dst, Relation relation,
                      const Memories& memories, std::vector<Param> params = {}) {
    constexpr bool sized = false;
    return Benchmark{"ping_pong", summary,           "Klenk 4 (KL-1)",     engine, src, dst, relation,
                     memories,    std::move(params), build_word_ping_pong, sized};
  };
  return of_role(
      Role::latency,
      {
          row("ping-pong between a CPU thread and a GPU thread: each sets a word that the other polls", Engine::cpu,
              numa, gpu, Relation::any, of_one_process),
          row("ping-pong between threads of two GPUs: each sets a word that the other polls", Engine::sm, gpu, gpu,
              Relation::different, of_one_process, {where}),
          row("ping-pong between a CPU thread of one process and a GPU thread of another", Engine::cpu, numa, gpu,
              Relation::any, of_two),
          row("ping-pong between CPU threads of two processes", Engine::cpu, numa, numa, Relation::any, of_two),
          row("ping-pong between GPUs of two processes, each of which opens the other's memory", Engine::sm, gpu, gpu,
              Relation::different, {{ipc, ipc}, {posix_fd, posix_fd}}, {where}),
          row("ping-pong between two kernels of one GPU: each sets a word that the other polls", Engine::sm, gpu, gpu,
              Relation::same, {{device, device}}),
          row("ping-pong between two kernels of one GPU, which are of two processes", Engine::sm, gpu, gpu,
              Relation::same, {{ipc, ipc}, {posix_fd, posix_fd}}, {two_processes_param()}),
      });
}

}  // namespace linkscope
