// A benchmark as data: regions of memory, actors, and the steps that each actor takes. A Platform (platform.hpp) runs
// it. Nothing here knows CUDA, a clock, or how many samples anybody wants.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/place.hpp"
#include "base/units.hpp"

namespace linkscope {

/// System memory is what the operating system gives to anybody, used by GPUs as it is (HMM, ATS): its pages move as those of
/// managed memory do. The last three belong to another process, which shares them: memory of a GPU by CUDA's IPC handles or
/// as a POSIX file descriptor, and host memory (POSIX shared memory) that is pinned afterwards.
enum class MemKind : u8 {
  pageable,
  pinned,
  registered,
  wc,
  mapped,
  managed,
  device,
  vmm,
  pool,
  hugepage,
  file,
  system,
  registered_hugepage,
  ipc,
  posix_fd,
  shm
};
/// The last but one are how managed memory moves: pages in bulk, or each as somebody touches it where it is not.
enum class Engine : u8 { ce, sm, tma, batch, graph, cpu, prefetch, fault, file };
enum class ActorKind : u8 { stream, cpu_thread };
enum class Clock : u8 { event, host, kernel };
/// Written and dirty: CPU caches hold host memory modified, that of the core that will touch it, or another core's.
enum class CacheState : u8 { cold, hot, written, dirty };
/// Whether a sample finds each byte as it should be only once.
[[nodiscard]] constexpr bool once_only(CacheState state) {
  return state == CacheState::written || state == CacheState::dirty;
}

/// What holds a stream until everything is queued. A kernel leaves the stream on the GPU's compute channel, as in an
/// application that computes, then copies; a wait of the stream itself leaves it where it was. Where nothing holds it, it
/// begins while the host still queues, and what the host takes for that is in the time.
enum class HeldBy : u8 { kernel, wait, nothing };

/// What a region holds before the first sample. Sources carry a pattern that depends on region and offset, so that any
/// slice delivered to the wrong place, or not at all, is seen; destinations are poisoned.
/// A chain is a cycle through all lines of the region, each holding the address of the next (program/chain.hpp). Words
/// that are counted in begin at zero.
enum class Content : u8 { pattern, poison, chain, zero };

/// What the driver is told of memory whose pages move: that it is mostly read, where it is best kept, or who will access it
/// wherever it is.
struct Advice {
  enum class Kind : u8 { read_mostly, preferred, accessed_by } kind = Kind::read_mostly;
  Place place;  // of read_mostly: unused
};

struct Region {
  Place at;
  MemKind kind = MemKind::pageable;
  u64 bytes = 0;
  Content content = Content::pattern;
  u64 page_bytes = 0;  // of hugepage and registered_hugepage memory; 0: the platform's default
  u32 process = 0;     // the process that allocates it; others map it, where its kind is shared
  std::optional<Advice> advice{};
  bool transparent = false;  // pages of page_bytes are the kernel's to give or not; otherwise they are reserved ones
};

/// How the bytes of a slice lie that are not in one piece: in rows, `pitch` apart; where `in_plane` is set, so many rows
/// are a plane, and planes are `plane_pitch` apart.
struct Rows {
  u64 bytes = 0;  // of a row; 0: the slice is one piece
  u64 pitch = 0;
  u64 in_plane = 0;  // rows of a plane; 0: all rows are one
  u64 plane_pitch = 0;

  [[nodiscard]] u64 offset_of(u64 row) const {
    return in_plane ? row / in_plane * plane_pitch + row % in_plane * pitch : row * pitch;
  }
};

/// A place in a region. Iteration i of a loop touches `bytes` at offset + (i % slices) * stride: a batch rotates over
/// distinct slices, so that caches see the footprint that was asked for and not one buffer again and again.
struct Span {
  u32 region = 0;
  u64 offset = 0;
  u64 bytes = 0;  // that are moved; with rows, those of all rows, without what lies between them
  u64 stride = 0;
  u32 slices = 1;
  Rows rows{};

  [[nodiscard]] u64 offset_at(u64 iteration) const { return offset + (iteration % slices) * stride; }
  /// From the first byte of a slice to its last.
  [[nodiscard]] u64 extent() const { return rows.bytes ? rows.offset_of(bytes / rows.bytes - 1) + rows.bytes : bytes; }
};

/// Whether a GPU's copy engines move the bytes, however they are told to.
[[nodiscard]] constexpr bool by_copy_engine(Engine engine) {
  return engine == Engine::ce || engine == Engine::batch || engine == Engine::graph;
}

/// How a kernel is launched. No blocks: one on each SM, so that several kernels run at once. No threads: it is no kernel.
/// CPU threads may be as many as their node has CPUs.
struct Shape {
  u32 blocks = 0, threads = 0;
};
constexpr u32 all_cpus = ~u32{0};  // threads

/// A transfer: `engine` moves `from.bytes` from one span to the other, byte k of one to byte k of the other. Where spans
/// have rows, those are of one length; a span in one piece takes or gives rows without gaps. By batch and graph, one call
/// or the launch of one graph does all copies of a batch of iterations; a graph's wait for each other.
struct Move {
  Span from, to;
  Engine engine = Engine::ce;
  // Between GPUs: by the call that names both contexts (cuMemcpyPeerAsync) and not by the one for any two addresses.
  bool peer_call = false;
  Shape shape{};            // where the actor's GPU copies by its threads (sm, tma)
  bool row_by_row = false;  // a copy for each row; otherwise one (2D, 3D) for all
  // The GPU whose stream or threads copy, where it is not the actor's. All that the actor did before is done by then, and
  // the actor goes on when this is.
  std::optional<Place> by{};
};

/// A move as rows of one length on both sides.
struct RowCopy {
  u64 bytes = 0, count = 1;  // of a row; how many
  Rows from, to;             // with planes of one height where either has planes
};
[[nodiscard]] RowCopy in_rows(const Move&);

inline constexpr u32 sector_bytes = 32;      // the least that a GPU's memory system moves
inline constexpr u32 peer_write_bytes = 16;  // and the least that crosses a link where a GPU writes another's memory

/// One side of the traffic that a kernel states: what it reads or writes, and how. Strided and random accesses are of the
/// first `width` bytes of every `stride` bytes, each once; strided ones by neighbouring threads side by side, random ones
/// in the order of program/line_order.hpp.
struct Access {
  Span span;
  enum class Dir : u8 { read, write } dir = Dir::read;
  enum class Pattern : u8 {
    linear,
    strided,
    random,
    chase,
    same
  } pattern = Pattern::linear;  // same: all of them the first word
  u32 width = 16;               // bytes a thread moves at once
  u64 stride = 0;               // strided, random; 0: the platform's page
  u32 unit = sector_bytes;      // the least that moves
};

/// Who sees the order of accesses: the threads of one GPU, or everybody.
enum class Scope : u8 { gpu, system };

/// How many accesses one iteration makes, by threads that move `width` bytes at once.
[[nodiscard]] u64 access_count(const Access&);
/// Bytes that they ask for, and those that move for it: whole units.
[[nodiscard]] u64 asked_bytes(const Access&);
[[nodiscard]] u64 moved_bytes(const Access&);

/// Device (or CPU) code by name ("read", "write", "exchange", "chase", "touch", "touch_chain", "add", "add_chain"), with its launch shape (of
/// CPU threads: how many) and the traffic it causes. Pages that move are touched in their first byte, or (linear) by CPU
/// threads in all of their words. Of a kernel
/// with `dependent_steps`, accesses of which each needs the one before, a whole batch is one launch: its iterations are
/// those steps. With `sm` a block is on each SM of the GPU, and only that SM's, by its number, takes the steps.
struct Kernel {
  std::string name;
  Shape shape{1, 32};
  u32 dependent_steps = 0;
  std::vector<Access> traffic;
  Scope scope = Scope::gpu;  // of atomic operations
  std::optional<u32> sm{};   // of a chase; none: it is wherever the GPU puts it
};

/// Writes a word of 8 bytes; iteration i writes value + i * step. What came before is visible to whoever sees the value.
/// A stream's loop of sets and waits is one launch, of one thread.
struct Set {
  Span word;
  u64 value = 0, step = 0;
  Scope scope = Scope::system;
};

/// Waits until a word is at least value + i * step, or the time-out passes (which fails the sample).
struct Wait {
  Span word;
  u64 value = 0, step = 0;
  Seconds timeout{2.0};
};

/// Pages of managed memory go to `to` in bulk, by the actor's stream; those that are there stay. A region's home is where
/// the region is `at`.
struct Prefetch {
  Span span;
  Place to;
  u32 ranges = 0;  // at most so many ranges by one call for all (cuMemPrefetchBatchAsync); 0: the call for one
  // What the pages hold is nothing to anybody any more, and need not come along: told by a call before, or by the same.
  enum class Discard : u8 { no, before, with } discard = Discard::no;
};

/// A call that is itself what is timed or needed. One that is made for a GPU (`on`), by what it does: "launch",
/// "create_stream", …, is made by a CPU thread, and what it queues may still be under way when the thread's last iteration
/// ends. Others are phases in the life of memory (allocation.hpp): each slice of the span is one allocation, and iteration i
/// is about slice i.
struct Call {
  std::string api;
  std::optional<Span> span;
  std::optional<Span> to{};   // where a copy goes
  std::optional<Place> on{};  // the GPU that it is made for
  u64 amount = 0;             // bytes of a launch's arguments, nodes of a graph
  bool until = false;         // brings all slices to where this phase is next, and does not do it
};

struct Range {
  u64 offset = 0, bytes = 0;
};
/// Its ranges from the span's start on: of equal length, in whole pages of 4 KiB, the last with what is left.
[[nodiscard]] std::vector<Range> ranges_of(const Prefetch&);

using Step = std::variant<Move, Kernel, Set, Wait, Call, Prefetch>;

/// A span that a step reads or writes.
struct Touch {
  Span span;
  bool writes = false;
};
[[nodiscard]] std::vector<Touch> touches(const Step&);

/// Somebody who does steps in order. A sample is: `once` (untimed), then everybody starts together, then `loop` as many
/// times as the batch says. The platform stamps the start of the first and the end of the last iteration with `clock`.
struct Actor {
  Place place;  // stream: its GPU; CPU thread: its NUMA node
  ActorKind kind = ActorKind::stream;
  Clock clock = Clock::event;
  std::optional<Place> cpu;  // NUMA node of the host thread that drives a stream; none: the one nearest to `place`
  u32 process = 0;
  std::vector<Step> once, loop;
};

/// Where the bytes of a loop's move come from: its source, or what earlier moves of the loop brought there.
[[nodiscard]] const Span& origin(const Actor&, const Move&);

/// What one actor's loop transfers, as the user knows it.
struct Flow {
  u32 actor = 0;
  Place src, dst;
  MemKind src_memory = MemKind::pageable, dst_memory = MemKind::pageable;
  u64 bytes = 0;  // per iteration
  bool measured = true;
};

struct Program {
  std::vector<Region> regions;
  std::vector<Actor> actors;
  std::vector<Flow> flows;
  bool peer = false;  // peer access among the GPUs that it names
  CacheState cache = CacheState::cold;
  HeldBy held_by = HeldBy::kernel;
  // Iterations that a sample may have: what `once` brings back lasts for so many, or a stream's queue holds so many. 0: any
  // number.
  u32 most_iterations = 0;
  // Before a sample nothing is queued for so long, and nobody works: only one iteration comes after that.
  Seconds idle{0};
};

inline constexpr Seconds longest_idle{1.0};

/// Whether everybody's loop waits for somebody else's: then all do the same number of iterations.
[[nodiscard]] bool in_step(const Program&);

/// Host memory of which the driver knows nothing: it copies through pinned memory of its own, and GPUs do not reach it.
[[nodiscard]] bool is_pageable(MemKind);

/// Memory that belongs to one process and that others open.
[[nodiscard]] bool is_shared(MemKind);

[[nodiscard]] const char* to_string(MemKind);
[[nodiscard]] const char* to_string(Engine);
[[nodiscard]] const char* to_string(ActorKind);
[[nodiscard]] const char* to_string(Clock);
[[nodiscard]] const char* to_string(HeldBy);
/// Throws Error{usage} that lists what there is.
[[nodiscard]] MemKind parse_mem_kind(std::string_view);
[[nodiscard]] Engine parse_engine(std::string_view);

/// Everybody of several programs at once. Throws Error{usage} where they ask for different states (peer access, caches,
/// what holds the streams, how long nobody worked before): those are the whole program's.
[[nodiscard]] Program together(const std::vector<Program>&);

/// The program in words, one line a step: for people, golden tests and error messages.
[[nodiscard]] std::string to_text(const Program&);

/// Whether memory of this kind has pages that move to who touches them.
[[nodiscard]] bool pages_move(MemKind);

/// Every inconsistency that a Platform may rely on not being there (a span outside its region, a missing region, a
/// move of unequal lengths, a flow without actor). Throws Error{usage} that names the step.
void validate(const Program&);

}  // namespace linkscope
