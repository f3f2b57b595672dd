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

enum class MemKind : u8 { pageable, pinned, registered, wc, mapped, managed, device, vmm, pool, hugepage, file, registered_hugepage };
/// The last but one are how managed memory moves: pages in bulk, or each as somebody touches it where it is not.
enum class Engine : u8 { ce, sm, tma, batch, graph, cpu, prefetch, fault, file };
enum class ActorKind : u8 { stream, cpu_thread };
enum class Clock : u8 { event, host, kernel };
enum class CacheState : u8 { cold, hot };

/// What holds a stream until everything is queued. A kernel leaves the stream on the GPU's compute channel, as in an
/// application that computes, then copies; a wait of the stream itself leaves it where it was.
enum class HeldBy : u8 { kernel, wait };

/// What a region holds before the first sample. Sources carry a pattern that depends on region and offset, so that any
/// slice delivered to the wrong place, or not at all, is seen; destinations are poisoned.
/// A chain is a cycle through all lines of the region, each holding the address of the next (program/chain.hpp).
enum class Content : u8 { pattern, poison, chain };

struct Region {
  Place at;
  MemKind kind = MemKind::pageable;
  u64 bytes = 0;
  Content content = Content::pattern;
  u64 page_bytes = 0;  // of hugepage and registered_hugepage memory; 0: the platform's default
  u32 process = 0;     // the process that allocates it; others map it
  bool transparent = false;  // pages of page_bytes are the kernel's to give or not; otherwise they are reserved ones
};

/// A place in a region. Iteration i of a loop touches `bytes` at offset + (i % slices) * stride: a batch rotates over
/// distinct slices, so that caches see the footprint that was asked for and not one buffer again and again.
struct Span {
  u32 region = 0;
  u64 offset = 0;
  u64 bytes = 0;
  u64 stride = 0;
  u32 slices = 1;

  [[nodiscard]] u64 offset_at(u64 iteration) const { return offset + (iteration % slices) * stride; }
};

/// How a kernel is launched. No blocks: one on each SM, so that several kernels run at once. No threads: it is no kernel.
struct Shape {
  u32 blocks = 0, threads = 0;
};

/// A transfer: `engine` moves `from.bytes` from one span to the other.
struct Move {
  Span from, to;
  Engine engine = Engine::ce;
  // Between GPUs: by the call that names both contexts (cuMemcpyPeerAsync) and not by the one for any two addresses.
  bool peer_call = false;
  Shape shape{};  // where the actor's GPU copies by its threads (sm, tma)
};

/// One side of the traffic that a kernel states: what it reads or writes, and how.
struct Access {
  Span span;
  enum class Dir : u8 { read, write } dir = Dir::read;
  enum class Pattern : u8 { linear, strided, random, chase } pattern = Pattern::linear;
  u32 width = 16;  // bytes a thread moves at once
};

/// Device (or CPU) code by name ("read", "write", "exchange", "chase", "touch", "touch_chain"), with its launch shape (of
/// CPU threads: how many) and the traffic it causes. Of a kernel
/// with `dependent_steps`, accesses of which each needs the one before, a whole batch is one launch: its iterations are
/// those steps.
struct Kernel {
  std::string name;
  Shape shape{1, 32};
  u32 dependent_steps = 0;
  std::vector<Access> traffic;
};

enum class Scope : u8 { gpu, system };

/// Writes a word; iteration i writes value + i * step. What came before is visible to whoever sees the value.
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
};

/// A call that is itself what is timed or needed: launch, sync, pin, map, … Of a phase in the life of memory (allocation.hpp)
/// each slice of the span is one allocation, and iteration i is about slice i.
struct Call {
  std::string api;
  std::optional<Span> span;
  bool until = false;  // brings all slices to where this phase is next, and does not do it
};

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
  Place place;               // stream: its GPU; CPU thread: its NUMA node
  ActorKind kind = ActorKind::stream;
  Clock clock = Clock::event;
  std::optional<Place> cpu;  // NUMA node of the host thread that drives a stream; none: the one nearest to `place`
  u32 process = 0;
  std::vector<Step> once, loop;
};

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
  // Iterations that a sample may have: what `once` brings back lasts for so many. 0: any number.
  u32 most_iterations = 0;
};

/// Host memory of which the driver knows nothing: it copies through pinned memory of its own, and GPUs do not reach it.
[[nodiscard]] bool is_pageable(MemKind);

[[nodiscard]] const char* to_string(MemKind);
[[nodiscard]] const char* to_string(Engine);
[[nodiscard]] const char* to_string(ActorKind);
[[nodiscard]] const char* to_string(Clock);
/// Throws Error{usage} that lists what there is.
[[nodiscard]] MemKind parse_mem_kind(std::string_view);
[[nodiscard]] Engine parse_engine(std::string_view);

/// Everybody of several programs at once. Throws Error{usage} where they ask for different states (peer access, caches,
/// what holds the streams): those are the whole program's.
[[nodiscard]] Program together(const std::vector<Program>&);

/// The program in words, one line a step: for people, golden tests and error messages.
[[nodiscard]] std::string to_text(const Program&);

/// Every inconsistency that a Platform may rely on not being there (a span outside its region, a missing region, a
/// move of unequal lengths, a flow without actor). Throws Error{usage} that names the step.
void validate(const Program&);

}  // namespace linkscope
