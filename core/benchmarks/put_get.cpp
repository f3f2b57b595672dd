// Klenk, Oden, Froning (KL-1, KL-3, KL-10): messages whose payload one side writes to the other (put), or fetches from it
// (get). A message ends with a word that the other side polls. Who moves the payload, and where the words lie, is the
// control mode.
#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;

// Each word has cache lines of its own.
constexpr u64 word_bytes = sizeof(u64), line = 256;
constexpr u32 ring_slots = 16;  // messages under way of a stream of messages
constexpr bool measured = true;

/// What a side's words say: the other side's message is there, its own request, and its request is done.
enum Number : u32 { message, request, done, numbers };

enum class Control : u8 { direct, notified, assisted, host };

Control control_of(const Case& c) {
  if (c.engine == Engine::ce) return c.param("control", "host") == "host" ? Control::host : Control::assisted;
  return c.param("control", "direct") == "direct" ? Control::direct : Control::notified;
}

/// One end of a connection: its place, the node of the CPU thread that serves it, and the regions of what it gives, of
/// what it receives, and of the words that it polls.
struct Side {
  Place at, node;
  MemKind memory;
  u32 given = 0, received = 0, words = 0;
  u32 packed = 0;  // of the packed words of messages to this side
};

/// The memory of two sides, and the actors that exchange messages through it.
class Connection {
 public:
  Connection(Program& program, const Case& c, u32 slots) : program_{program}, case_{c}, slots_{slots} {
    const Place node = c.src.kind == PlaceKind::numa   ? c.src
                       : c.dst.kind == PlaceKind::numa ? c.dst
                                                       : Place{PlaceKind::numa, 0, c.src.host, {}};
    sides_ = {Side{c.src, node, c.src_memory}, Side{c.dst, node, c.dst_memory}};
    const bool between_gpus = c.src.kind == c.dst.kind;
    for (auto& side : sides_) {
      const bool on_gpu = between_gpus && control_ == Control::direct;
      side.given = add({side.at, side.memory, slots * slice_stride(c.bytes), Content::pattern});
      side.received = add({side.at, side.memory, slots * slice_stride(c.bytes), Content::poison});
      side.words =
          add({on_gpu ? side.at : node, on_gpu ? side.memory : MemKind::pinned, numbers * line, Content::zero});
      if (is_packed_)
        side.packed = add({on_gpu ? side.at : node, on_gpu ? side.memory : MemKind::pinned,
                           slots * slice_stride(2 * c.bytes), Content::zero});
    }
  }

  [[nodiscard]] Set tell(u32 side, Number number) const { return {word(side, number), 1, 1}; }
  [[nodiscard]] Wait await(u32 side, Number number, u32 ahead = 0) const {
    return {word(side, number), u64{1} - ahead, 1};
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

  /// Adds the actor of a side. `payload_of`: the giver of the payload that it moves between `before` and `behind`.
  void add_side(u32 side, std::vector<Step> before, std::optional<u32> payload_of, std::vector<Step> behind) {
    auto loop = std::move(before);
    if (payload_of && control_ != Control::assisted) {
      if (!is_packed_) loop.emplace_back(payload(*payload_of));
      add_flow(*payload_of, case_.bytes, measured);
    } else {
      add_flow(side, 0, !measured);
    }
    loop.insert(loop.end(), std::make_move_iterator(behind.begin()), std::make_move_iterator(behind.end()));
    const bool on_host = sides_[side].at.kind == PlaceKind::numa;
    add_actor(side,
              on_host                     ? ActorKind::cpu_thread
              : control_ == Control::host ? ActorKind::stream
                                          : ActorKind::gpu_block,
              std::move(loop));
  }

  /// Adds the stream that moves a payload for a side's block: the block's request starts it, and `then` says that it ended.
  void add_helper(u32 side, u32 payload_of, const Set& then) {
    add_flow(payload_of, case_.bytes, measured);
    add_actor(side, ActorKind::stream, {await(side, request), payload(payload_of), then});
  }

  [[nodiscard]] bool is_assisted(u32 side) const {
    return control_ == Control::assisted && sides_[side].at.kind == PlaceKind::gpu;
  }
  [[nodiscard]] bool is_gpu(u32 side) const { return sides_[side].at.kind == PlaceKind::gpu; }

 private:
  [[nodiscard]] u32 actors() const { return static_cast<u32>(program_.actors.size()); }
  [[nodiscard]] Span word(u32 side, Number number) const { return {sides_[side].words, number * line, word_bytes}; }
  /// The payload of a message to a side, which lies in one of its slots if there are several.
  [[nodiscard]] Span part_of(u32 region, u32 side) const {
    const bool gives = is_giver(1 - side);
    return {region, 0, gives ? case_.bytes : word_bytes, slice_stride(case_.bytes), gives ? slots_ : 1};
  }
  [[nodiscard]] Span packed(u32 side) const {
    const auto part = part_of(0, side);
    return {sides_[side].packed, 0, 2 * part.bytes, slice_stride(2 * case_.bytes), part.slices};
  }
  /// Whether a side's messages have the payload of the case. A stream of messages has one giver.
  [[nodiscard]] bool is_giver(u32 side) const { return is_gpu(side) && (side == 0 || slots_ == 1); }
  [[nodiscard]] Move payload(u32 giver) const {
    const u64 stride = slice_stride(case_.bytes);
    return {{sides_[giver].given, 0, case_.bytes, stride, slots_},
            {sides_[1 - giver].received, 0, case_.bytes, stride, slots_},
            case_.engine};
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
    if (kind != ActorKind::gpu_block) actor.clock = Clock::host;
    if (kind == ActorKind::stream) actor.cpu = sides_[side].node;
    if (kind == ActorKind::gpu_block)
      actor.threads = control_ == Control::assisted ? 1 : static_cast<u32>(std::stoul(case_.param("threads", "1024")));
    actor.loop = std::move(loop);
    program_.actors.push_back(std::move(actor));
  }
  u32 add(const Region& region) {
    program_.regions.push_back(region);
    return static_cast<u32>(program_.regions.size() - 1);
  }

  Program& program_;
  const Case& case_;
  u32 slots_;
  Control control_ = control_of(case_);
  bool is_packed_ = case_.param("word", "separate") == "packed";
  std::array<Side, 2> sides_;
};

/// Side 0 speaks first. Each side with a GPU puts its payload into the other's memory before it tells the other.
void add_put_round_trip(Connection& made) {
  for (const u32 side : {0u, 1u}) {
    const u32 other = 1 - side;
    std::vector<Step> first, last;
    (side == 0 ? last : first).emplace_back(made.receive(side));
    const auto told = made.is_assisted(side) ? made.tell(side, request) : made.send(other);
    last.insert(side == 0 ? last.begin() : last.end(), told);
    made.add_side(side, std::move(first), made.is_gpu(side) ? std::optional{side} : std::nullopt, std::move(last));
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
    made.add_side(side, std::move(first), made.is_gpu(side) ? std::optional{other} : std::nullopt, std::move(last));
    if (made.is_assisted(side)) made.add_helper(side, other, made.tell(side, done));
  }
}

/// Messages from side 0 to side 1, at most `ring_slots` under way. The side that moves them says so to the other.
void add_messages(Connection& made, u32 mover) {
  const Wait room = made.receive(0, ring_slots), there = made.receive(1);
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
  if (c.engine == Engine::ce) program.held_by = HeldBy::nothing;  // host threads exchange the words of both
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
  Connection made{program, c, 1};
  add(made);
  return in_order(std::move(program), c);
}

template <u32 mover>
Program messages(const Case& c) {
  Program program = empty(c);
  for (auto left = std::stoul(c.param("connections", "1")); left > 0; --left) {
    Connection made{program, c, ring_slots};
    add_messages(made, mover);
  }
  return in_order(std::move(program), c);
}

}  // namespace

std::vector<Benchmark> puts_and_gets() {
  using enum PlaceKind;
  using enum MemKind;
  const Param direct{
      "control",
      {"direct", "notified"},
      "where the words lie that end a message: in the memory of the GPU that polls them, or of the host"};
  const Param by_host{"control",
                      {"host", "assisted"},
                      "who asks the copy engine: a CPU thread alone, or a CPU thread on the request of a GPU"};
  const Param threads{"threads", {"1024", "32", "1"}, "threads of a GPU's block: a block, a warp, or one thread"};
  const Param connections{
      "connections", {"1", "2", "4", "8", "16", "32", "64"}, "rings of messages, each with its own block"};
  const Param word{"word",
                   {"separate", "packed"},
                   "what ends a message: a word behind a fence, or a number in each 16 bytes beside 8 of the payload"};
  std::vector<Benchmark> rows;
  const auto add = [&](std::string_view name, std::string_view summary, PlaceKind src, PlaceKind dst,
                       Program (*build)(const Case&), bool is_stream) {
    const bool between_gpus = src == dst;
    for (const auto engine : {Engine::sm, Engine::ce}) {
      std::vector<Param> params;
      if (engine == Engine::ce) params.push_back(by_host);
      if (engine == Engine::sm && between_gpus) params.push_back(direct);
      if (engine == Engine::sm) params.push_back(threads);
      if (engine == Engine::sm && name.starts_with("put")) params.push_back(word);
      if (is_stream) params.push_back(connections);
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
  return rows;
}

}  // namespace linkscope
