// A benchmark as data: regions of memory, actors, and the steps of each actor. A Platform (platform.hpp) runs a Program.
// Nothing here knows CUDA, a clock, or the number of samples.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "program/steps.hpp"

namespace linkscope {

/// `gpu_block`: the threads of one block, which run the whole loop as one launch. Blocks, and CPU threads that set or
/// wait for words, perform ops (base/actor_ops.hpp).
/// `nic`: a network card, which takes descriptors from a ring and carries out what they ask for: it copies to another host and
/// sets words behind the copy, there and here.
enum class ActorKind : u8 { stream, cpu_thread, gpu_block, nic };
[[nodiscard]] constexpr bool on_gpu(ActorKind kind) {
  return kind == ActorKind::stream || kind == ActorKind::gpu_block;
}
enum class Clock : u8 { event, host, kernel };
/// `written`: the cache of the core that will access the memory holds it modified. `dirty`: another core's cache does.
/// `cleaned`: the calling core has written it and then back to memory (clwb), so that its cache may hold it unmodified.
/// `fresh`: pageable destinations have no pages: the first store to each takes one from the kernel.
enum class CacheState : u8 { cold, hot, written, dirty, cleaned, fresh };
/// Whether the first access to a byte destroys the state, so that a sample may access each byte only once.
[[nodiscard]] constexpr bool once_only(CacheState state) {
  return state != CacheState::cold && state != CacheState::hot;
}

/// What holds a stream until all work is queued. `kernel`: a spinning kernel leaves the stream on the GPU's compute
/// channel, as in an application that computes and then copies. `wait`: a stream wait leaves the channel unchanged.
/// `nothing`: the stream starts while the host still queues, so the measured time includes the host's calls.
enum class HeldBy : u8 { kernel, wait, nothing };

inline constexpr u32 all_tenths = 10;
/// The part-th of `parts` equal shares of a GPU's SMs: a green context.
struct SmShare {
  u32 part = 0, parts = 1;
};

/// A stream, CPU thread or GPU block that executes steps in order. The host thread that drives a stream waits for the
/// words of its loop before it queues the steps behind them, and sets a word when the copies before it are done: if these are
/// kernels, it waits for the stream. A sample runs `once` (untimed), then starts all actors together,
/// then runs `loop` for the number of iterations in the batch. The platform stamps the start of the first and the end of
/// the last iteration with `clock`.
struct Actor {
  Place place;  // stream, GPU block: its GPU; CPU thread: its NUMA node; network card: itself
  ActorKind kind = ActorKind::stream;
  Clock clock = Clock::event;
  std::optional<Place> cpu;  // NUMA node of the host thread that drives a GPU's actor; none: nearest to `place`
  u32 process = 0;
  std::vector<Step> once, loop;
  u32 threads = 1;  // of a GPU block; all of them run each step, so the shapes of its steps are unused
  // Tenths of a sample of a duration in which the actor works: it rests after each iteration. 10: it never rests.
  u32 tenths = all_tenths;
  // In a sample of a duration each iteration waits until the one before has ended, and its duration is kept (Series).
  bool singly = false;
  // In a sample of a duration, the stream whose host thread runs this loop of messages while it waits for that stream.
  std::optional<u32> thread_of{};
  std::optional<u32> core{};     // the only CPU of its host thread, as in Message; none: any CPU of the node
  std::optional<SmShare> sms{};  // of a stream whose kernels run on a part of the SMs; none: on all
  bool bound = true;             // false: its host thread runs on any NUMA node
  bool urgent = false;  // a stream of the highest priority: its kernels' blocks start before waiting ones of others
  // Blocks of one GPU with the same number are blocks of one kernel. None: a kernel and a stream of its own.
  std::optional<u32> grid{};
  // Steps of the loop that all passes of an iteration make before any pass makes the other steps: a message in chunks has
  // come as a whole before the answer begins. 0: each pass makes all steps.
  u32 first_steps = 0;
};

/// Whether two actors are blocks of one kernel. They have the same stamps and the same iterations in a batch.
[[nodiscard]] bool same_grid(const Actor&, const Actor&);

/// Seconds that an actor rests after an iteration that took `worked` seconds.
[[nodiscard]] double rest_after(const Actor&, double worked);

/// The message of an actor that exchanges messages; null for other actors.
[[nodiscard]] const Message* message_of(const Actor&);

/// Whether an actor's loop has messages of MPI, UCX or NIXL.
[[nodiscard]] bool talks_to_ranks(const Actor&);
/// Whether an actor's loop is a round trip with one other process, by blocking calls.
[[nodiscard]] bool makes_round_trips(const Actor&);
/// Why an actor cannot have them in its loop; "" if it can, or has none.
[[nodiscard]] std::string why_no_rank_messages(const Actor&);
/// Why an actor's loop cannot have two parts (Actor::first_steps); "" if it can, or has one.
[[nodiscard]] std::string why_no_parts(const Actor&);

struct Program;
/// The number of the first actor of an actor's grid, whose launch is that of all; of the actor itself without a grid.
[[nodiscard]] u32 leader_of(const Program&, u32 actor);
/// Why an actor cannot be in its grid; "" if it can, or has none.
[[nodiscard]] std::string why_no_grid(const Program&, const Actor&);
/// Whether an actor's loop has words that others set or wait for.
[[nodiscard]] bool exchanges_words(const Actor&);
/// Whether an actor's loop waits for words.
[[nodiscard]] bool waits_for_words(const Actor&);
/// Whether an actor performs ops: a GPU block, or a CPU thread that exchanges words.
[[nodiscard]] bool performs_ops(const Actor&);
/// The collective of an actor; null for other actors.
[[nodiscard]] const Collective* collective_of(const Actor&);
/// Why an actor cannot have its collective; "" if it can, or has none.
[[nodiscard]] std::string why_no_collective(const Program&, const Actor&);
/// Whether collectives change their inputs, so that a second iteration has other results.
[[nodiscard]] bool changes_inputs(const Program&);
/// Whether an actor waits for others in each iteration, by words, by messages of MPI or in collectives.
[[nodiscard]] bool keeps_step(const Actor&);
/// Why a step of such an actor's loop is no op; "" if it is one.
[[nodiscard]] std::string why_no_op(const Actor&, const Step&);

[[nodiscard]] std::string to_text(const Message&);
/// Why an actor's messages are not valid; "" if they are, or if it exchanges none.
[[nodiscard]] std::string why_no_messages(const Program&, const Actor&);

/// The first source of a move's bytes: its own source, or the source of an earlier move of the loop that wrote there.
[[nodiscard]] const Span& origin(const Actor&, const Move&);

/// One transfer as the user names it: the net effect of one actor's loop.
struct Flow {
  u32 actor = 0;
  Place src, dst;
  MemKind src_memory = MemKind::pageable, dst_memory = MemKind::pageable;
  u64 bytes = 0;  // per iteration
  bool measured = true;
  double operations = 0;  // arithmetic operations per iteration
};

struct Program {
  std::vector<Region> regions;
  std::vector<Actor> actors;
  std::vector<Flow> flows;
  bool peer = false;  // peer access among the GPUs of the program
  CacheState cache = CacheState::cold;
  HeldBy held_by = HeldBy::kernel;
  // Upper bound of iterations in a sample, set by the state that `once` restores or by the depth of a stream's queue.
  // 0: no bound.
  u32 most_iterations = 0;
  // Passes through the loop of every actor in one iteration. A transfer in chunks is a pass per chunk: spans rotate, and
  // words count, with passes. More than one only in programs whose actors all wait for each other.
  u32 passes = 1;
  // The processes share GPUs through MPS: their kernels run side by side, without time slices.
  bool mps = false;
  // Idle time before a sample. A program with idle time has one iteration per sample.
  Seconds idle{0};
};

inline constexpr Seconds longest_idle{1.0};

/// Whether every actor's loop waits for another actor. All actors then run the same number of iterations.
[[nodiscard]] bool in_step(const Program&);

[[nodiscard]] const char* to_string(ActorKind);
[[nodiscard]] const char* to_string(Clock);
[[nodiscard]] const char* to_string(HeldBy);

/// Several programs merged into one whose actors all run concurrently. Throws Error{usage} if the programs differ in a
/// state that a program has once: peer access, caches, `held_by`, idle time.
[[nodiscard]] Program together(const std::vector<Program>&);

/// Whether a step of an actor's loop does what a descriptor asks for that the actor has taken.
[[nodiscard]] bool is_of_job(const Actor&, const Step&);

/// The program as text, one line per step, for people, golden tests and error messages.
[[nodiscard]] std::string to_text(const Program&);

/// Whether the memory and the threads of a program are all bound to NUMA nodes.
[[nodiscard]] bool is_bound(const Program&);

/// Checks the properties that every Platform relies on: spans lie inside their regions, regions exist, moves have equal
/// lengths, flows have actors. Throws Error{usage} that names the step.
void validate(const Program&);

}  // namespace linkscope
