// A Program as the simulation runs it: each actor is a lane of copies, each copy has one or two stages with their paths
// and fixed costs, looked up once when the program is prepared.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/actor_ops.hpp"
#include "platform/sim/fluid.hpp"
#include "platform/sim/machine.hpp"
#include "platform/sim/routes.hpp"
#include "program/platform.hpp"

namespace linkscope::sim {

inline constexpr u32 nobody = ~u32{0};

/// Servers that one transfer holds at a time (or a few): copy engines, the driver's copying thread, slots of a ring.
/// Engines belong to the machine; each process has a driver of its own, with its thread and its rings.
struct Servers {
  explicit Servers(const Machine&);

  /// How many transfers each can serve, for a number of processes.
  [[nodiscard]] std::vector<u32> counts(u32 processes) const;
  /// The driver's thread for all pageable copies in both directions; nobody if each caller copies for itself.
  [[nodiscard]] u32 copying_thread(u32 process) const { return by_caller_ ? nobody : driver(process); }
  /// Slots, to_device and from_device.
  [[nodiscard]] u32 pageable_ring(u32 process, Direction direction) const { return driver(process) + 1 + direction; }
  /// Slots, for all pairs together.
  [[nodiscard]] u32 staged_peer_ring(u32 process) const { return driver(process) + 3; }
  /// The driver's lock, held by one thread at a time.
  [[nodiscard]] u32 lock(u32 process) const { return driver(process) + 4; }
  /// The copy engines of a GPU that serve a direction. Copies within it are kernels of the driver.
  [[nodiscard]] u32 engine(u32 gpu_index, Direction direction) const { return engines_[gpu_index * 4 + direction]; }
  /// All SMs of a GPU: kernels with more blocks than find room run one after the other.
  [[nodiscard]] u32 all_sms(u32 gpu_index) const { return engine(gpu_index, within_device); }
  /// What a network card sends with: one message at a time.
  [[nodiscard]] u32 card(u32 index) const { return cards_ + index; }

 private:
  std::vector<u32> counts_;     // of engines
  std::vector<u32> of_driver_;  // of a process's thread, rings and lock
  std::vector<u32> engines_;
  u32 cards_ = 0;           // the first
  bool by_caller_ = false;  // the calling thread copies pageable memory

  [[nodiscard]] u32 driver(u32 process) const { return static_cast<u32>(counts_.size() + process * of_driver_.size()); }
};

/// One leg of a copy.
struct Stage {
  enum class By : u8 {
    engine,   // a copy engine
    compute,  // the GPU itself, in its compute channel
    threads,  // SMs of a GPU: a kernel
    relay,    // copy engines, chunk by chunk, with the driver's hand-over between GPUs
    thread,   // memcpy by a CPU thread
    call,     // a CPU thread in the driver, held for the duration
    card,     // a network card
  } by = By::engine;
  u32 server = nobody;
  bool drains = false;  // the server finishes everything of one stream before it turns to another
  Path path;
  double setup = 0;         // s per chunk, besides the path's latency
  u64 first_setup = 0;      // B of the first set-up; each further set-up doubles the total; 0: one set-up for the chunk
  double byte_setup = 0;    // and s per byte of it
  double region_setup = 0;  // and s per region of pages, and per block, of which none was there
  double block_setup = 0;
  double present = 0;     // s if nothing is missing, in place of the set-up
  double wake_up = 0;     // additional s of its first chunk, for what had been idle
  Inline in_command{};    // small chunks go in the command itself
  u32 opposite = nobody;  // the engine of the other direction, which delays this one's set-up
  u32 gpu = nobody;       // by its index: the GPU that must run the process's context for this; nobody: CPU work
  u32 counter = 0;        // index among all stages of the program, for byte counts
};

/// Pages of a managed region that move: home, or to the one other place where the program accesses them.
struct Migration {
  Span span;
  bool home = false;
  u64 around = 1;        // pages move in whole multiples of this many bytes
  u64 block = 1;         // and except in the first part of such a block, as much as lies before them in it
  bool contents = true;  // moving pages bring their contents
};

/// An op that sets a word, waits for one, or orders stores. A set word is visible after `way`; a waiting actor polls, each
/// poll takes `poll` and sees the word in its middle. What it has seen it takes within `take`; to read all words of a
/// message takes at least `read`. Addresses are those of address_of().
struct Flag {
  ActorOp op{};
  double way = 0, poll = 0, take = 0, read = 0;
  std::string what;  // of a wait, in words

  [[nodiscard]] bool waits() const { return op.kind == OpKind::wait; }
};

/// The address of a byte of a region among all regions of a program.
[[nodiscard]] constexpr u64 address_of(u32 region, u64 offset) { return (u64{region} << 48) + offset; }

/// A phase in the life of memory, one allocation per slice; or the preparation of all of them.
struct Phase {
  Span span;
  bool until = false, holds = false;  // holds: memory exists after it
};

/// One step: chunk by chunk through its stages; a ring's slot is held from the start of the first to the end of the
/// last.
struct Op {
  std::vector<Stage> stages;
  u64 bytes = 0, chunk_bytes = 0;
  u32 chunks = 1;
  u32 ring = nobody;
  bool waits = false;       // the caller waits for it
  double call = 0;          // CPU time of the call, where the caller waits for it
  double start = 0;         // s before the first chunk
  bool elsewhere = false;   // runs on a stream of another GPU; the lane's stream waits for it
  double lead = 0;          // additional s before the first of a batch
  double tail = 0;          // additional s after the last
  u32 calls = 1;            // on the host, per iteration; 0: one for the whole batch
  double queue = 0;         // s of the host per call that queues it
  double queue_copy = 0;    // and per copy of a call for the whole batch
  bool overlaps = false;    // the next of its kind starts when the source has been read, before this one has arrived
  std::vector<Move> moves;  // its effect on memory; none: it only reads, or writes what nobody copies
  u32 id = 0;               // of its first track (Memory)
  std::optional<Migration> migration;  // of a chunk only missing pages move
  std::optional<Flag> flag;
  double launches = 0,
         each = 0;     // GPU work that remains: s until it ends on an idle GPU, and after another
  bool joins = false;  // its end includes the earlier work of the lane
  std::optional<Phase> phase;
};

struct Lane {
  std::vector<Op> once, loop;
  u32 process = 0;
  u32 leader = 0;             // the lane that launches the kernel of which this one is a block; usually itself
  bool by_event = true;       // stamped by events on the stream; otherwise by the host's clock
  bool after_kernel = false;  // the gate that held its stream was a kernel
  bool held = true;           // its stream, until everything is queued
  bool waits = false;         // its calls return when their copies are done
  bool queues = false;        // the host queues while the GPU works: nothing starts before its call has queued it
  bool called = false;        // each of its steps is queued by a call
  bool exchanges = false;     // sets or waits for words
  u32 pair = 0;               // of a lane with round trips: number of both ranks; 0: of all others with words
  bool singly = false;        // each iteration waits for its own end, and its duration is kept
  double closing = 0;         // from the end of the last copy to its stamp
  double rest = 0;            // s after each iteration of a sample of a duration, per s of it
  std::string route;          // in words
  u32 first_ops = 0;          // of the loop's first part (Actor::first_steps); 0: it has one part
};

struct Lanes {
  std::vector<Lane> lanes;
  u32 tracks = 0, stages = 0, processes = 1;
  u32 passes = 1;    // of an iteration
  bool mps = false;  // processes run side by side on a GPU

  /// The GPUs, by index, that several processes use in turn.
  [[nodiscard]] std::vector<u32> shared_gpus() const;
};

/// Adds the use of a resource to a path: `weight` of its bytes per byte of the path.
void add_use(Path&, u32 resource, double weight = 1);
/// Sets a word of its own beside all regions, or waits for it. `value` grows by `step` with each iteration; `what` says
/// what was waited for. Ranks of the simulation keep count so.
[[nodiscard]] Op count_op(OpKind, u64 word, u64 value, u64 step, std::string what);
/// The number of processes that a program's actors belong to.
[[nodiscard]] u32 processes(const Program&);
/// A copy by SM as a kernel: its accesses are one pair.
[[nodiscard]] Kernel kernel_of(const Move&);
/// A library call as a kernel on all SMs with the same traffic.
[[nodiscard]] Kernel as_kernel(const Opaque&);
/// Whether its time depends on a rate of operations. Memory bounds work on integers.
[[nodiscard]] bool computes(const Opaque&);

class Compiler {
 public:
  Compiler(const Machine& machine, const Routes& routes, const Servers& servers)
      : machine_{machine}, routes_{routes}, servers_{servers} {}

  [[nodiscard]] u32 link_resource(u32 link) const {
    return machine_.first_gpu() + static_cast<u32>(machine_.gpus.size()) + link;
  }
  /// The reason why the machine cannot run the program, if any.
  [[nodiscard]] Support supports(const Program&) const;
  /// Only for supported programs.
  [[nodiscard]] Lanes compile(const Program&) const;
  /// The capacities that paths refer to.
  [[nodiscard]] std::vector<double> capacities() const;

 private:
  const Machine& machine_;
  const Routes& routes_;
  const Servers& servers_;

  [[nodiscard]] Support supports_processes(const Program&) const;
  [[nodiscard]] Support supports(const Program&, const Actor&, const Step&) const;
  // Copies of rows and copies that are queued together (pieces.cpp).
  [[nodiscard]] Support supports_pieces(const Program&, const Actor&, const Move&) const;
  void in_pieces(const Move&, Op&) const;
  void together(const Move&, Op&) const;
  [[nodiscard]] double sectors(const Span&) const;
  // The cost of queueing on the host, and wake-up delays (queueing.cpp).
  void queue(const Actor&, const Step&, Op&) const;
  void wake(const Program&, const Actor&, Lane&) const;
  [[nodiscard]] Support supports(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] Support supports_accesses(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] Support supports_access(const Program&, const Actor&, const Kernel&, const Region&) const;
  [[nodiscard]] std::vector<Op> ops(const Program&, const Actor&, const std::vector<Step>&, Lanes&) const;
  void finish(const Actor&, const Step&, Op&, Lanes&) const;
  [[nodiscard]] Op op(const Program&, const Actor&, const Step&) const;
  void time(const Program&, const Actor&, Lane&) const;
  void run_singly(const Actor&, Lane&) const;
  [[nodiscard]] std::string route(const Actor&, const Lane&) const;
  // Copies (copies.cpp).
  [[nodiscard]] Op op(const Program&, const Actor&, const Move&) const;
  [[nodiscard]] Stage pageable_memcpy(const Program&, const Actor&, const Move&, Direction, Op&) const;
  [[nodiscard]] Op move_file(const Program&, const Move&) const;
  [[nodiscard]] Op move_mapped(const Program&, const Actor&, const Move&) const;
  [[nodiscard]] double first_touches(const Program&, const Region& target, u64 bytes) const;
  void copy_by_cpu(const Program&, const Actor&, const Move&, Op&) const;
  void copy_within(Node gpu, Op&) const;
  void copy_between_gpus(const Program&, const Actor&, const Move&, Op&) const;
  void copy_to_gpu(const Program&, const Actor&, const Move&, Op&) const;
  void copy_from_gpu(const Program&, const Actor&, const Move&, Op&) const;
  // Copies and words from one host to another, by network cards (network.cpp).
  [[nodiscard]] Support supports_send(const Program&, const Actor&, const Move&) const;
  [[nodiscard]] Support supports_network(Node from, Node to) const;
  [[nodiscard]] Support supports_far_word(const Program&, const Actor&, const Span& word) const;
  [[nodiscard]] bool goes_to_other_host(const Program&, const Actor&, const Span& word) const;
  [[nodiscard]] std::pair<const Nic*, const Nic*> cards(const std::vector<u32>& links) const;
  [[nodiscard]] double message_time(const Path&) const;
  [[nodiscard]] double eager_rate(const Nic&, Node numa) const;
  [[nodiscard]] double gpu_rate(const Nic& sender, const Nic& receiver, const Move&, Node from, Node to) const;
  [[nodiscard]] Op send(const Program&, const Actor&, const Move&) const;
  // Descriptors and notifications of network cards (cards.cpp).
  [[nodiscard]] bool is_card_word(const Program&, const Actor&, const Span& word) const;
  [[nodiscard]] Support supports_card_word(const Program&, const Actor&, const Step&) const;
  [[nodiscard]] Support supports_post(const Actor&, const Region& ring, const Job&, const Nic&) const;
  [[nodiscard]] Support supports_notification(const Program&, const Actor&, const Span& word) const;
  [[nodiscard]] const Nic* card_of(const Program&, const Actor&, const Set&) const;
  [[nodiscard]] double post_time(const Program&, const Actor&, const Set&, const Nic&) const;
  [[nodiscard]] double take_time(const Program&, const Actor&, const Wait&) const;
  [[nodiscard]] double read_time(const Program&, const Actor& card) const;
  [[nodiscard]] double card_time(const Program&, const Actor& card) const;
  [[nodiscard]] const Actor* notifier(const Program&, const Span& word) const;
  [[nodiscard]] Stage::By at_stage(Node) const;
  [[nodiscard]] double load_time(Node) const;
  // Accesses by SMs and CPU threads (accesses.cpp).
  [[nodiscard]] Op op(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] Support supports_file(const Program&, const Actor&, const Move&) const;
  [[nodiscard]] Support supports(const Program&, const Actor&, const Opaque&) const;
  [[nodiscard]] Support supports(const Program&, const Actor&, const Message&) const;
  [[nodiscard]] Op op(const Program&, const Actor&, const Message&) const;
  // Messages between ranks (ranks.cpp).
  [[nodiscard]] Support supports(const Program&, const Actor&, const RankMessage&) const;
  [[nodiscard]] std::vector<Op> ops(const Program&, const Actor&, const RankMessage&) const;
  // Collectives between GPUs (collectives.cpp).
  [[nodiscard]] Support supports(const Program&, const Actor&, const Collective&) const;
  [[nodiscard]] std::vector<Op> ops(const Program&, const Actor&, const Collective&) const;
  [[nodiscard]] Op op(const Program&, const Actor&, const Opaque&) const;
  [[nodiscard]] Op streamed(const Actor&, const Opaque&) const;
  [[nodiscard]] Stage packed(const Program&, const Actor&, const Set&) const;
  [[nodiscard]] double packed_read_time(const Actor&, const Span& word, const Flag&) const;
  [[nodiscard]] Op copy_by_sm(const Program&, const Actor&, const Move&) const;
  [[nodiscard]] Op chase(const Program&, const Actor&, const Kernel&) const;
  // Managed memory (managed.cpp).
  [[nodiscard]] Support supports_managed(const Program&) const;
  [[nodiscard]] Support supports_touch(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] Support supports(const Program&, const Actor&, const Prefetch&) const;
  [[nodiscard]] Op op(const Program&, const Actor&, const Prefetch&) const;
  [[nodiscard]] double host_pages_cap(Node from, Node gpu, u64 bytes) const;
  [[nodiscard]] Op touch(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] std::optional<Node> away(const Program&, u32 region) const;
  [[nodiscard]] bool pages_go_directly(const Program&, Node from, Node to) const;
  [[nodiscard]] Path migration_path(const Program&, Node from, Node to) const;
  // Other memory kinds and their cost (kinds.cpp).
  [[nodiscard]] Support supports_kind(const Region&) const;
  [[nodiscard]] Support supports_phase(const Program&, const Actor&, const Call&) const;
  [[nodiscard]] Op phase(const Program&, const Call&) const;
  [[nodiscard]] double cpu_cap(const Region&, bool writes) const;
  [[nodiscard]] double translated_by_page(const Region&) const;
  // Calls and words (calls.cpp).
  [[nodiscard]] Support supports(const Program&, const Actor&, const Call&) const;
  [[nodiscard]] Op op(const Program&, const Actor&, const Call&) const;
  [[nodiscard]] Support supports_flag(const Program&, const Actor&, const Span& word) const;
  [[nodiscard]] Op op(const Program&, const Actor&, const Set&) const;
  [[nodiscard]] Op op(const Program&, const Actor&, const Wait&) const;
  [[nodiscard]] Op fence(const Program&, const Actor&) const;
  [[nodiscard]] double acknowledged(const Program&, const Actor&) const;
  [[nodiscard]] Flag flag(const Program&, const Actor&, const Span& word) const;
  [[nodiscard]] Node at_words(const Actor&) const;
  [[nodiscard]] Op atomic(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] Op atomic_by_cpu(const Program&, const Actor&, const Access&) const;
  [[nodiscard]] Op accessed(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] bool mapped(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] Op accessed_by_cpu(const Program&, const Actor&, const Kernel&) const;
  void add_kernel_side(const Program&, Node gpu, const Access&, Stage&) const;
  [[nodiscard]] double free_sms(const Program&, const Actor&) const;
  [[nodiscard]] double kernel_cap(const Actor&, const Shape&, double tile, double tile_bytes) const;
  [[nodiscard]] bool in_l2(const Program&, Node gpu) const;
  [[nodiscard]] u32 walks(Node gpu) const;
  [[nodiscard]] u32 l2(Node gpu) const { return walks(gpu) + static_cast<u32>(machine_.gpus.size()); }
  [[nodiscard]] double out_of_reach(const Program&, Node gpu) const;
  [[nodiscard]] Node node(const Place&) const;
  [[nodiscard]] Node host_of(const Actor&) const;
  [[nodiscard]] u32 cpu_threads(Node numa, const Kernel&) const;
  [[nodiscard]] Path path(Node from, Node to) const;
  [[nodiscard]] Path memcpy_path(const Program&, Node thread, Node from, Node to, double rate_near) const;
  [[nodiscard]] bool in_cache(const Program&, Node numa) const;
  void add_links(Path&, Node from, Node to) const;
  [[nodiscard]] Stage engine_stage(Node gpu, Direction, Node from, Node to) const;
  [[nodiscard]] double pull_setup(const Path&, u64 bytes) const;
  [[nodiscard]] double late(Direction, u64 bytes) const;
  [[nodiscard]] double memcpy_rate(Node host, u64 bytes) const;
  [[nodiscard]] double first_load(const Program&, Node host, Node from) const;
};

}  // namespace linkscope::sim
