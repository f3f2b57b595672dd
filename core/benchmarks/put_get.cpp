// Klenk, Oden, Froning (KL-1, KL-3, KL-10): messages whose payload one side writes to the other (put), or fetches from it
// (get). A message ends with a word that the other side polls. Who moves the payload, and where the words lie, is the
// control mode.
#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;

constexpr u32 ring_slots = 16;  // messages under way of a stream of messages
constexpr u32 least_slots = 4;  // of each group of blocks: a put does not wait for the answer to the one before
constexpr bool measured = true;
constexpr u32 one_warp = 32;  // of a block that copies by TMA

/// What a side's words say: the other side's message is there, its own request, and its request is done.
enum Number : u32 { message, request, done, numbers };

enum class Control : u8 { direct, notified, own, assisted, host };

Control control_of(const Case& c) {
  if (c.engine == Engine::ce) return c.param("control", "host") == "host" ? Control::host : Control::assisted;
  const auto named = c.param("control", "direct");
  return named == "direct" ? Control::direct : named == "own" ? Control::own : Control::notified;
}

/// Whether a kernel is launched for each message, as programs do whose kernels do not stay on the GPU. The host thread then
/// exchanges the words.
bool is_relaunched(const Case& c) { return c.param("kernel", "persistent") == "relaunched"; }

/// One end of a connection: its place, the node of the CPU thread that serves it, and the regions of what it gives, of
/// what it receives, and of the words that it polls.
struct Side {
  Place at, node;
  MemKind memory;
  u32 given = 0, received = 0, words = 0;
  u32 packed = 0;  // of the packed words of messages to this side
};

using Movers = std::array<bool, 2>;  // whether each side moves a payload

/// The memory of two sides, and the actors that exchange messages through it. A mover may have several blocks, each of which
/// moves a part of the payload and sets a word of its own behind it. A block may be ahead of the others, so a word that all of
/// them add to would say of a message that it is there when parts of it are not.
///
/// Several messages may be sent at once: each by blocks of its own, or in packed words by the threads of one block. An
/// iteration is that many messages, and the receiver waits for all of their words.
class Connection {
 public:
  Connection(Program& program, const Case& c, u32 slots, Movers movers) : program_{program}, case_{c} {
    const u32 blocks = c.number("blocks", "1");
    check(blocks);
    slots_ = slots == 1 || at_once_ == 1 ? slots : std::max(slots / at_once_, least_slots);
    part_ = part_of_block(c.bytes, relaunched_ ? 1 : blocks);  // a relaunched kernel has all blocks
    parts_ = static_cast<u32>((c.bytes + part_ - 1) / part_);
    for (const u32 side : {0u, 1u})
      if (movers[side]) blocks_[side] = is_packed_ ? 1 : at_once_ * parts_;
    const Place node = c.src.kind == PlaceKind::numa   ? c.src
                       : c.dst.kind == PlaceKind::numa ? c.dst
                                                       : Place{PlaceKind::numa, 0, c.src.host, {}};
    sides_ = {Side{c.src, node, c.src_memory}, Side{c.dst, node, c.dst_memory}};
    const bool between_gpus = c.src.kind == c.dst.kind;
    for (auto& side : sides_) {
      const bool on_gpu = between_gpus && !relaunched_ && (control_ == Control::direct || control_ == Control::own);
      const Side& with_words = control_ == Control::own ? sides_[&side == sides_.data()] : side;
      const u64 all = slots_ * (is_packed_ ? slice_stride(packed_bytes()) : most_blocks() * stride());
      const u32 process = process_of(static_cast<u32>(&side - sides_.data()));
      const auto add_region = [&](const Place& at, MemKind kind, u64 bytes, Content content) {
        return add({.at = at, .kind = kind, .bytes = bytes, .content = content, .process = process});
      };
      const auto own = is_shared(side.memory) ? MemKind::device : side.memory;  // the other process does not read it
      side.given = add_region(side.at, own, all, Content::pattern);
      side.received = add_region(side.at, side.memory, all, Content::poison);
      side.words = add_region(on_gpu ? with_words.at : node, on_gpu ? side.memory : MemKind::pinned,
                              numbers * words_gap(), Content::zero);
      if (is_packed_)
        side.packed = add_region(on_gpu ? side.at : node, on_gpu ? side.memory : MemKind::pinned,
                                 slots_ * slice_stride(2 * packed_bytes()), Content::zero);
    }
  }

  /// By the first block; the others have words behind it.
  [[nodiscard]] Set tell(u32 side, Number number) const { return {word(side, number), 1, 1}; }
  /// Until each block of the other side has told.
  [[nodiscard]] Wait await(u32 side, Number number, u32 ahead = 0) const {
    Wait wait{word(side, number), u64{1} - ahead, 1};
    wait.word.bytes *= blocks_[1 - side];
    return wait;
  }
  /// The end of a message to a side, or that it has ended: the word of its own, or the words that have the payload, too. A
  /// side that gives nothing sends 8 bytes.
  [[nodiscard]] Set send(u32 side) const {
    if (!is_packed_) return tell(side, message);
    return {packed(side), 1, 1, Scope::system, part_of(sides_[1 - side].given, side)};
  }
  [[nodiscard]] Wait receive(u32 side, u32 ahead = 0) const {
    if (!is_packed_) return await(side, message, ahead);
    return {packed(side), u64{1} - ahead, 1, Wait{}.timeout, part_of(sides_[side].received, side)};
  }

  /// Adds the actors of a side. `payload_of`: the giver of the payload that they move between `before` and `behind`.
  void add_side(u32 side, const std::vector<Step>& before, std::optional<u32> payload_of,
                const std::vector<Step>& behind) {
    for (u32 block = 0; block < blocks_[side]; ++block) add_block(side, block, before, payload_of, behind);
  }
  /// Adds the stream that moves a payload for a side's block: the block's request starts it, and `then` says that it ended.
  void add_helper(u32 side, u32 payload_of, const Set& then) {
    add_flow(payload_of, case_.bytes, measured);
    add_actor(side, ActorKind::stream, {await(side, request), payload(payload_of, 0), then});
  }

  [[nodiscard]] bool is_assisted(u32 side) const {
    return control_ == Control::assisted && sides_[side].at.kind == PlaceKind::gpu;
  }
  [[nodiscard]] bool is_gpu(u32 side) const { return sides_[side].at.kind == PlaceKind::gpu; }
  /// Iterations of which messages may be under way.
  [[nodiscard]] u32 slots() const { return slots_; }

 private:
  void check(u32 blocks) const {
    if (is_packed_ && blocks > 1)
      throw Error{ErrorKind::usage, "packed words come from one block: use blocks=1 or word=separate"};
    if (relaunched_ && (is_packed_ || control_ == Control::own || at_once_ > 1))
      throw Error{
          ErrorKind::usage,
          "the host thread of relaunched kernels exchanges words in its own memory, for a message at a time: use "
          "word=separate, at_once=1, and control=direct or control=notified"};
  }
  /// Memory that two processes share means that each has a side.
  [[nodiscard]] u32 process_of(u32 side) const { return is_shared(case_.src_memory) ? side : 0; }
  [[nodiscard]] u32 actors() const { return static_cast<u32>(program_.actors.size()); }
  [[nodiscard]] Span word(u32 side, Number number) const {
    return {sides_[side].words, number * words_gap(), word_bytes};
  }
  /// Bytes of one kind of words: those of the blocks lie behind each other, because one warp polls 32 of them at once.
  [[nodiscard]] u64 words_gap() const {
    return (most_blocks() * word_bytes + line_bytes - 1) / line_bytes * line_bytes;
  }
  /// Of all messages that one block sends at once.
  [[nodiscard]] u64 packed_bytes() const { return at_once_ * case_.bytes; }
  /// The payload of a message to a side, which lies in one of its slots if there are several.
  [[nodiscard]] Span part_of(u32 region, u32 side) const {
    const bool gives = is_giver(1 - side);
    return {region, 0, gives ? packed_bytes() : word_bytes, slice_stride(packed_bytes()), gives ? slots_ : 1};
  }
  [[nodiscard]] Span packed(u32 side) const {
    const auto part = part_of(0, side);
    return {sides_[side].packed, 0, 2 * part.bytes, slice_stride(2 * packed_bytes()), part.slices};
  }
  /// Whether a side's messages have the payload of the case. A stream of messages has one giver.
  [[nodiscard]] bool is_giver(u32 side) const { return is_gpu(side) && (side == 0 || slots_ == 1); }
  /// Of the part of a block. As many blocks move a message, and then come those of the next.
  [[nodiscard]] u64 bytes_of(u32 block) const { return std::min(part_, case_.bytes - block % parts_ * part_); }
  [[nodiscard]] u32 most_blocks() const { return std::max(blocks_[0], blocks_[1]); }
  /// Of the slots of a block, which lie behind each other.
  [[nodiscard]] u64 stride() const { return slice_stride(bytes_of(0)); }
  /// The part of a block. Helpers move all.
  [[nodiscard]] Move payload(u32 giver, u32 block) const {
    const u64 offset = u64{block} * slots_ * stride(), bytes = bytes_of(block);
    return {{sides_[giver].given, offset, bytes, stride(), slots_},
            {sides_[1 - giver].received, offset, bytes, stride(), slots_},
            case_.engine,
            false,
            relaunched_ ? Shape{case_.number("blocks", "1"), threads()} : Shape{}};
  }
  /// Of a block.
  [[nodiscard]] u32 threads() const { return case_.engine == Engine::tma ? one_warp : case_.number("threads", "1024"); }
  static u64 part_of_block(u64 bytes, u32 blocks) {
    constexpr u64 least = 128;  // a line
    return ((bytes + blocks - 1) / blocks + least - 1) / least * least;
  }
  void add_block(u32 side, u32 block, std::vector<Step> loop, std::optional<u32> payload_of,
                 const std::vector<Step>& behind) {
    if (payload_of && control_ != Control::assisted) {
      if (!is_packed_) loop.emplace_back(payload(*payload_of, block));
      const bool first = block == 0;  // the blocks keep in step, so the time of the first is that of the message
      add_flow(*payload_of, first ? at_once_ * case_.bytes : 0, first);
    } else {
      add_flow(side, 0, !measured);
    }
    loop.insert(loop.end(), behind.begin(), behind.end());
    for (auto& step : loop)
      if (auto* set = std::get_if<Set>(&step)) set->word.offset += block * word_bytes;
    const bool on_host = sides_[side].at.kind == PlaceKind::numa;
    add_actor(side,
              on_host                                    ? ActorKind::cpu_thread
              : control_ == Control::host || relaunched_ ? ActorKind::stream
                                                         : ActorKind::gpu_block,
              std::move(loop));
  }
  /// The flow of the next actor.
  void add_flow(u32 giver, u64 bytes, bool counts) {
    const auto &from = sides_[giver], &to = sides_[1 - giver];
    program_.flows.push_back({actors(), from.at, to.at, from.memory, to.memory, bytes, counts});
  }
  void add_actor(u32 side, ActorKind kind, std::vector<Step> loop) {
    Actor actor;
    actor.place = sides_[side].at;
    actor.kind = kind;
    actor.process = process_of(side);
    // Events of one process do not order the work of another.
    if (kind != ActorKind::gpu_block || is_shared(case_.src_memory)) actor.clock = Clock::host;
    if (kind == ActorKind::stream) actor.cpu = sides_[side].node;
    if (kind == ActorKind::gpu_block) {
      actor.threads = control_ == Control::assisted ? 1 : threads();
      actor.grid = grid_of(case_, side);
    }
    actor.loop = std::move(loop);
    program_.actors.push_back(std::move(actor));
  }
  u32 add(const Region& region) {
    program_.regions.push_back(region);
    return static_cast<u32>(program_.regions.size() - 1);
  }

  Program& program_;
  const Case& case_;
  Control control_ = control_of(case_);
  bool relaunched_ = is_relaunched(case_);
  bool is_packed_ = case_.param("word", "separate") == "packed";
  std::array<Side, 2> sides_;
  std::array<u32, 2> blocks_{1, 1};
  u32 at_once_ = case_.number("at_once", "1"), slots_ = 1;
  u64 part_ = 0;   // bytes of a block's part
  u32 parts_ = 1;  // blocks that move a message
};

/// Side 0 speaks first. Each side with a GPU puts its payload into the other's memory before it tells the other.
void add_put_round_trip(Connection& made) {
  for (const u32 side : {0u, 1u}) {
    const u32 other = 1 - side;
    std::vector<Step> first, last;
    (side == 0 ? last : first).emplace_back(made.receive(side));
    const auto told = made.is_assisted(side) ? made.tell(side, request) : made.send(other);
    last.insert(side == 0 ? last.begin() : last.end(), told);
    made.add_side(side, first, made.is_gpu(side) ? std::optional{side} : std::nullopt, last);
    if (made.is_assisted(side)) made.add_helper(side, side, made.tell(other, message));
  }
}

/// Side 0 says that its payload may be fetched. Each side with a GPU fetches the other's before it goes on.
void add_get_round_trip(Connection& made) {
  for (const u32 side : {0u, 1u}) {
    const u32 other = 1 - side;
    std::vector<Step> first, last;
    if (side == 0) first.emplace_back(made.tell(other, message));
    first.emplace_back(made.await(side, message));
    if (made.is_assisted(side)) {
      first.emplace_back(made.tell(side, request));
      first.emplace_back(made.await(side, done));
    }
    if (side == 1) last.emplace_back(made.tell(other, message));
    made.add_side(side, first, made.is_gpu(side) ? std::optional{other} : std::nullopt, last);
    if (made.is_assisted(side)) made.add_helper(side, other, made.tell(side, done));
  }
}

/// Messages from side 0 to side 1, at most as many under way as the ring has slots. The side that moves them says so to
/// the other.
void add_messages(Connection& made, u32 mover) {
  const Wait room = made.receive(0, made.slots()), there = made.receive(1);
  const Set sent = made.send(1), received = made.send(0);
  const Step wait = mover == 0 ? Step{room} : Step{there};
  const Set told = mover == 0 ? sent : received;
  constexpr u32 giver = 0;
  const auto passive = [&](u32 side) {
    made.add_side(side, {side == 0 ? Step{room} : Step{there}}, std::nullopt, {side == 0 ? sent : received});
  };
  if (mover == 1) passive(0);
  if (made.is_assisted(mover)) made.add_side(mover, {wait}, giver, {made.tell(mover, request)});
  else made.add_side(mover, {wait}, giver, {told});
  if (made.is_assisted(mover)) made.add_helper(mover, giver, told);
  if (mover == 0) passive(1);
}

Program empty(const Case& c) {
  Program program;
  program.peer = c.src.kind == c.dst.kind;
  program.mps = c.param("way", "") == "mps";
  // Host threads exchange the words of both.
  if (c.engine == Engine::ce || is_relaunched(c)) program.held_by = HeldBy::nothing;
  return program;
}

/// The payload from the case's source is the first flow, which results name.
Program in_order(Program program, const Case& c) {
  std::ranges::stable_partition(program.flows, &Flow::measured);
  std::ranges::stable_partition(program.flows, [&](const Flow& flow) { return flow.measured && flow.src == c.src; });
  return program;
}

template <void (*add)(Connection&)>
Program round_trip(const Case& c) {
  Program program = empty(c);
  Connection made{program, c, 1, {c.src.kind == PlaceKind::gpu, c.dst.kind == PlaceKind::gpu}};
  add(made);
  return in_order(std::move(program), c);
}

template <u32 mover>
Program messages(const Case& c) {
  Program program = empty(c);
  for (u32 left = c.number("connections", "1"); left > 0; --left) {
    Connection made{program, c, ring_slots, {mover == 0, mover == 1}};
    add_messages(made, mover);
  }
  return in_order(std::move(program), c);
}

}  // namespace

std::vector<Benchmark> puts_and_gets() {
  using enum PlaceKind;
  using enum MemKind;
  const Param direct{"control",
                     {"direct", "notified", "own"},
                     "where the words lie that end a message: in the memory of the GPU that polls them, of the host, "
                     "or of the GPU that "
                     "sets them"};
  const Param by_host{"control",
                      {"host", "assisted"},
                      "who asks the copy engine: a CPU thread alone, or a CPU thread on the request of a GPU"};
  const Param threads{"threads", {"1024", "32", "1"}, "threads of a GPU's block: a block, a warp, or one thread"};
  constexpr bool not_in_id = false;
  const Param blocks{"blocks",
                     {"1", "2", "4", "8", "16", "32", "64", "132"},
                     "blocks that move a message together; each sets a word of its own behind its part",
                     not_in_id};
  const Param at_once{
      "at_once",
      {"1", "2", "4", "8", "16", "32", "128"},
      "messages of a connection that are sent at once: each by blocks of its own, or in packed words by "
      "the threads of one block",
      not_in_id};
  const Param connections{
      "connections", {"1", "2", "4", "8", "16", "32", "64", "132"}, "rings of messages, each with its own block"};
  const Param word{"word",
                   {"separate", "packed"},
                   "what ends a message: a word behind a fence, or a number in each 16 bytes beside 8 of the payload"};
  const Param kernel{"kernel",
                     {"persistent", "relaunched"},
                     "a kernel that stays and polls, or one for each message, which the host launches, waits for, and "
                     "polls for",
                     not_in_id};
  std::vector<Benchmark> rows;
  const auto add = [&](std::string_view name, std::string_view summary, PlaceKind src, PlaceKind dst,
                       Program (*build)(const Case&), bool is_stream) {
    const bool between_gpus = src == dst;
    for (const auto engine : {Engine::sm, Engine::tma, Engine::ce}) {
      std::vector<Param> params;
      if (engine == Engine::ce) params.push_back(by_host);
      if (engine != Engine::ce && between_gpus) params.push_back(direct);
      if (engine == Engine::sm) params.push_back(threads);
      if (engine != Engine::ce) params.insert(params.end(), {blocks, kernel});
      if (engine == Engine::sm && name.starts_with("put")) params.push_back(word);
      if (is_stream || engine != Engine::ce) params.push_back(launch_param());
      if (is_stream) params.push_back(connections);
      if (is_stream && engine != Engine::ce && name.starts_with("put")) params.push_back(at_once);
      rows.push_back({name,
                      summary,
                      is_stream ? "Klenk 4 (KL-1, KL-3)" : "Klenk 4 (KL-1)",
                      engine,
                      src,
                      dst,
                      between_gpus ? Relation::different : Relation::any,
                      {{src == gpu ? device : pinned, dst == gpu ? device : pinned}},
                      std::move(params),
                      build});
    }
  };
  add("put", "messages that a GPU writes to another, which polls for them", gpu, gpu, messages<0>, true);
  add("put", "messages that a GPU writes to host memory, where a CPU thread polls for them", gpu, numa, messages<0>,
      true);
  add("get", "messages that a GPU fetches from another, which says when they are there", gpu, gpu, messages<1>, true);
  add("get", "messages that a GPU fetches from host memory when a CPU thread says so", numa, gpu, messages<1>, true);
  add("put_ping_pong", "a message there and one back, each written by its sender", gpu, gpu,
      round_trip<add_put_round_trip>, false);
  add("put_ping_pong", "a message to host memory, written by a GPU, and a word back", gpu, numa,
      round_trip<add_put_round_trip>, false);
  add("get_ping_pong", "a message there and one back, each fetched by its receiver", gpu, gpu,
      round_trip<add_get_round_trip>, false);
  add("get_ping_pong", "a message from host memory, fetched by a GPU, and a word back", numa, gpu,
      round_trip<add_get_round_trip>, false);
  const auto add_kernels = [&](std::string_view name, std::string_view summary, Relation relation, MemKind memory,
                               Program (*build)(const Case&), std::vector<Param> params, Engine engine = Engine::sm) {
    const bool is_stream = name == "put" || name == "get";
    if (engine == Engine::sm) params.push_back(threads);
    if (engine == Engine::sm && name.starts_with("put")) params.push_back(word);
    if (is_stream) params.push_back(connections);
    rows.push_back({name,
                    summary,
                    is_stream ? "Klenk 4 (KL-1, KL-3)" : "Klenk 4 (KL-1)",
                    engine,
                    gpu,
                    gpu,
                    relation,
                    {{memory, memory}},
                    std::move(params),
                    build});
  };
  const Param within{"control",
                     {"direct", "notified"},
                     "where the words lie that end a message: in the memory of the GPU, or of the host",
                     not_in_id};
  for (const auto engine : {Engine::sm, Engine::ce}) {
    const std::vector<Param> params = engine == Engine::ce ? std::vector{by_host} : std::vector{within, launch_param()};
    const auto add_within = [&](std::string_view name, std::string_view summary, Program (*build)(const Case&)) {
      add_kernels(name, summary, Relation::same, device, build, params, engine);
    };
    add_within("put", "messages between two kernels of one GPU", messages<0>);
    add_within("get", "messages between two kernels of one GPU, fetched by the receiver", messages<1>);
    add_within("put_ping_pong", "a message there and one back between two kernels of one GPU",
               round_trip<add_put_round_trip>);
    add_within("get_ping_pong", "a message there and one back between two kernels of one GPU, fetched by the receiver",
               round_trip<add_get_round_trip>);
  }
  add_kernels("put_ping_pong", "a message there and one back between kernels of two processes on one GPU",
              Relation::same, ipc, round_trip<add_put_round_trip>, {two_processes_param()});
  add_kernels("put_ping_pong", "a message there and one back between GPUs of two processes", Relation::different, ipc,
              round_trip<add_put_round_trip>, {});
  return rows;
}

}  // namespace linkscope
