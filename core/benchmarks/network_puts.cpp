// Klenk, Oden, Froning (KL-1 to KL-4, KL-7, KL-10): puts into the memory of a GPU on another host and gets from it, which
// network cards carry out. A thread posts a descriptor to the card of its host: a GPU block, or a CPU thread, on its own or
// on a block's request. The card says by notifications that it has sent a put and that a payload has arrived; or the GPU
// polls the last word of a payload. Nobody on the other host takes part in a get.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u32 ring_slots = 16;  // puts under way of a stream
constexpr bool measured = true;

enum class Way : u8 { put, get };

enum class Control : u8 { direct, notified, host, assisted };

Control control_of(const Case& c) {
  const auto named = c.param("control", "direct");
  return named == "direct"     ? Control::direct
         : named == "notified" ? Control::notified
         : named == "host"     ? Control::host
                               : Control::assisted;
}

/// Whether GPU blocks post.
bool is_by_gpu(const Case& c) { return control_of(c) == Control::direct || control_of(c) == Control::notified; }

/// The words of a side that others set: a put of its own has been sent, one of the other side has arrived; a GPU's request to
/// the thread of its host, and that thread's answer.
enum Number : u32 { sent, arrived, request, answer, numbers };

/// One end of a connection: its places and the regions of its memory. `ring`: what it posts to, and `told`, the word that
/// tells the card; `notes`: its notifications; `last`: the last word of a payload; `pointers`: what it writes when it has
/// taken notifications; `flags`: words between the GPU and its host.
struct Side {
  Place gpu, numa, card;
  u32 given = 0, received = 0, ring = 0, told = 0, notes = 0, last = 0, pointers = 0, flags = 0;
};

class Connection {
 public:
  Connection(Program& program, const Case& c, Way way, u32 slots, u64 bytes)
      : program_{&program},
        way_{way},
        slots_{slots},
        bytes_{bytes},
        control_{control_of(c)},
        queue_{c.param("queue", "card")} {
    for (const u32 number : {0u, 1u}) {
      auto& side = sides_[number];
      side.gpu = number == 0 ? c.src : c.dst;
      side.numa = {PlaceKind::numa, 0, side.gpu.host, {}};
      side.card = {PlaceKind::nic, 0, side.gpu.host, {}};
      const Place& queues = queue_ == "own" && is_by_gpu(c) ? side.gpu : side.numa;
      side.given = add(side.gpu, slots * slice_stride(bytes), Content::pattern);
      side.received = add(side.gpu, slots * slice_stride(bytes), Content::poison);
      side.ring = add(in_registers() ? side.card : queues, ring_slots * descriptor());
      side.told = add(side.card, line_bytes);
      side.notes = add(queues, numbers * line_bytes);
      side.last = add(side.gpu, line_bytes);
      side.pointers = add(in_registers() ? side.card : queues, numbers * line_bytes);
      side.flags = add(side.numa, numbers * line_bytes);
    }
  }

  [[nodiscard]] const Side& side(u32 number) const { return sides_[number]; }
  [[nodiscard]] Set tell(u32 side, Number number) const { return {flag(side, number), 1, 1}; }
  [[nodiscard]] Wait await(u32 side, Number number, u32 ahead = 0) const {
    return {flag(side, number), u64{1} - ahead, 1};
  }

  /// Adds a post, and what tells the card of it if the descriptor is not in its registers.
  void post(u32 side, std::vector<Step>& loop) const {
    Set set{slot(side), 1, 1};
    set.job = job(side);
    loop.emplace_back(set);
    if (!in_registers()) loop.emplace_back(Set{doorbell(side), 1, 1});
  }
  /// Adds a wait until the card has sent all puts but those that may be under way.
  void wait_sent(u32 side, std::vector<Step>& loop, u32 ahead = 0) const {
    if (says_sent()) loop.emplace_back(notification(side, sent, ahead));
  }
  [[nodiscard]] Wait wait_arrived(u32 side, u32 ahead = 0) const {
    return control_ == Control::direct ? Wait{{sides_[side].last, 0, word_bytes}, u64{1} - ahead, 1}
                                       : notification(side, arrived, ahead);
  }
  /// Adds a wait until one of the messages that may be under way has ended.
  void wait_for_room(u32 side, std::vector<Step>& loop) const {
    if (way_ == Way::get) loop.emplace_back(wait_arrived(side, ring_slots));
    wait_sent(side, loop, ring_slots);
  }

  /// Adds the card that carries out what a side posts, and the flow.
  void add_card(u32 side) const {
    const auto &from = sides_[giver(side)], &to = sides_[1 - giver(side)];
    program_->flows.push_back({static_cast<u32>(program_->actors.size()), from.gpu, to.gpu, MemKind::device,
                               MemKind::device, bytes_, measured});
    Actor card{sides_[side].card, ActorKind::nic, Clock::host, {}, 0, {}, {}};
    Wait take{slot(side), 1, 1};
    take.job = job(side);
    if (!in_registers()) card.loop.emplace_back(Wait{doorbell(side), 1, 1});
    card.loop.emplace_back(take);
    card.loop.emplace_back(Move{*take.job->from, *take.job->to, Engine::nic});
    card.loop.emplace_back(Set{*take.job->signal, 1, 1});
    if (says_sent()) card.loop.emplace_back(Set{{sides_[side].notes, sent * line_bytes, word_bytes}, 1, 1});
    program_->actors.push_back(std::move(card));
  }

 private:
  [[nodiscard]] bool in_registers() const { return queue_ == "card"; }
  /// Bytes: three words (KL-7), or the element of a verbs queue.
  [[nodiscard]] u64 descriptor() const { return in_registers() ? 24 : 64; }
  /// Whether puts say that they have been sent. A round trip of words in GPU memory needs no notification from a card with
  /// registers (KL-8); queues in memory must be emptied. A get has ended when its payload has arrived.
  [[nodiscard]] bool says_sent() const {
    const bool has_note = control_ != Control::direct;
    return way_ == Way::put ? slots_ > 1 || has_note || !in_registers() : !has_note && !in_registers();
  }
  /// The side with the payload of what a side posts.
  [[nodiscard]] u32 giver(u32 side) const { return way_ == Way::put ? side : 1 - side; }
  [[nodiscard]] Span flag(u32 side, Number number) const {
    return {sides_[side].flags, number * line_bytes, word_bytes};
  }
  [[nodiscard]] Span doorbell(u32 side) const { return {sides_[side].told, 0, word_bytes}; }
  [[nodiscard]] Span slot(u32 side) const { return {sides_[side].ring, 0, descriptor(), descriptor(), ring_slots}; }
  [[nodiscard]] Job job(u32 side) const {
    const u64 stride = slice_stride(bytes_);
    const u32 from = giver(side), to = 1 - from;
    return {0, descriptor(), Span{sides_[from].given, 0, bytes_, stride, slots_},
            Span{sides_[to].received, 0, bytes_, stride, slots_}, wait_arrived(to).word};
  }
  [[nodiscard]] Wait notification(u32 side, Number number, u32 ahead) const {
    Wait wait{{sides_[side].notes, number * line_bytes, word_bytes}, u64{1} - ahead, 1};
    wait.pointer = Span{sides_[side].pointers, number * line_bytes, word_bytes};
    return wait;
  }
  u32 add(const Place& at, u64 bytes, Content content = Content::zero) {
    program_->regions.push_back({at, at.kind == PlaceKind::numa ? MemKind::pinned : MemKind::device, bytes, content});
    return static_cast<u32>(program_->regions.size() - 1);
  }

  Program* program_;
  Way way_;
  u32 slots_;
  u64 bytes_;
  Control control_;
  std::string queue_;
  std::array<Side, 2> sides_;
};

/// An actor that exchanges words, without a payload of its own.
void add_user(Program& program, const Case& c, const Place& at, std::vector<Step> loop, u32 grid) {
  program.flows.push_back({static_cast<u32>(program.actors.size()), c.src, c.dst, c.src_memory, c.dst_memory, 0});
  program.flows.back().measured = false;
  Actor actor;
  actor.place = at;
  actor.loop = std::move(loop);
  actor.kind = at.kind == PlaceKind::gpu ? ActorKind::gpu_block : ActorKind::cpu_thread;
  if (actor.kind == ActorKind::gpu_block) actor.grid = grid_of(c, grid);
  else actor.clock = Clock::host;
  program.actors.push_back(std::move(actor));
}

/// Side 0 speaks first. The thread that posts waits for the notifications, too.
Program round_trip(const Case& c) {
  Program program;
  const Connection made{program, c, Way::put, 1, c.bytes};
  const bool helps = control_of(c) == Control::assisted;
  for (const u32 side : {0u, 1u}) made.add_card(side);
  for (const u32 side : {0u, 1u}) {
    const auto& at = made.side(side);
    std::vector<Step> puts, receives{made.wait_arrived(side)};
    if (helps) puts.emplace_back(made.await(side, request));
    made.post(side, puts);
    made.wait_sent(side, puts);
    if (helps) receives.emplace_back(made.tell(side, answer));
    auto& first = side == 0 ? puts : receives;
    const auto& then = side == 0 ? receives : puts;
    first.insert(first.end(), then.begin(), then.end());
    add_user(program, c, is_by_gpu(c) ? at.gpu : at.numa, std::move(first), side);
    std::vector<Step> asks{made.tell(side, request), made.await(side, answer)};
    if (side == 1) std::ranges::reverse(asks);
    if (helps) add_user(program, c, at.gpu, std::move(asks), side);
  }
  return program;
}

/// One get: the request goes there, and the payload comes back.
Program fetch(const Case& c) {
  Program program;
  const Connection made{program, c, Way::get, 1, c.bytes};
  const bool helps = control_of(c) == Control::assisted;
  constexpr u32 side = 1;
  const auto& at = made.side(side);
  made.add_card(side);
  std::vector<Step> loop;
  if (helps) loop.emplace_back(made.await(side, request));
  made.post(side, loop);
  loop.emplace_back(made.wait_arrived(side));
  made.wait_sent(side, loop);
  if (helps) loop.emplace_back(made.tell(side, answer));
  add_user(program, c, is_by_gpu(c) ? at.gpu : at.numa, std::move(loop), side);
  if (helps) add_user(program, c, at.gpu, {made.tell(side, request), made.await(side, answer)}, side);
  return program;
}

/// At most `ring_slots` gets of a connection are under way. One thread of the host that fetches serves all in turn.
Program fetches(const Case& c) {
  Program program;
  const bool helps = control_of(c) == Control::assisted;
  constexpr u32 side = 1;
  std::vector<Connection> all;
  for (u64 left = std::stoul(c.param("connections", "1")); left > 0; --left)
    all.emplace_back(program, c, Way::get, ring_slots, c.bytes);
  for (const auto& one : all) one.add_card(side);
  std::vector<Step> loop;
  for (const auto& one : all) {
    if (helps) loop.emplace_back(one.await(side, request));
    one.wait_for_room(side, loop);
    one.post(side, loop);
    if (helps) loop.emplace_back(one.tell(side, answer));
    if (is_by_gpu(c)) add_user(program, c, one.side(side).gpu, std::exchange(loop, {}), side);
    if (helps)
      add_user(program, c, one.side(side).gpu, {one.await(side, answer, ring_slots), one.tell(side, request)}, side);
  }
  if (!loop.empty()) add_user(program, c, all.front().side(side).numa, std::move(loop), side);
  return program;
}

/// At most `ring_slots` puts of a connection are under way. On each host one thread serves all connections in turn.
Program messages(const Case& c) {
  Program program;
  const bool helps = control_of(c) == Control::assisted;
  std::vector<Connection> all;
  for (u64 left = std::stoul(c.param("connections", "1")); left > 0; --left)
    all.emplace_back(program, c, Way::put, ring_slots, c.bytes);
  for (const auto& one : all) one.add_card(0);
  std::array<std::vector<Step>, 2> loops;
  for (const auto& one : all) {
    if (helps) loops[0].emplace_back(one.await(0, request));
    one.wait_for_room(0, loops[0]);
    one.post(0, loops[0]);
    loops[1].emplace_back(one.wait_arrived(1));
    for (const u32 side : {0u, 1u}) {
      if (helps) loops[side].emplace_back(one.tell(side, answer));
      if (is_by_gpu(c)) add_user(program, c, one.side(side).gpu, std::exchange(loops[side], {}), side);
    }
    if (!helps) continue;
    add_user(program, c, one.side(0).gpu, {one.await(0, answer, ring_slots), one.tell(0, request)}, 0);
    add_user(program, c, one.side(1).gpu, {one.await(1, answer)}, 1);
  }
  for (const u32 side : {0u, 1u})
    if (!loops[side].empty()) add_user(program, c, all.front().side(side).numa, std::move(loops[side]), side);
  return program;
}

/// Posts alone: no card takes them.
Program posts(const Case& c) {
  Program program;
  const Connection made{program, c, Way::put, 1, line_bytes};
  std::vector<Step> loop;
  made.post(0, loop);
  add_user(program, c, c.src, std::move(loop), 0);
  program.flows.front().measured = true;
  return program;
}

}  // namespace

std::vector<Benchmark> network_puts() {
  const Param control{"control",
                      {"direct", "notified", "host", "assisted"},
                      "who posts: a GPU that polls the last word of a payload, a GPU that takes notifications, a CPU "
                      "thread, or a CPU thread on the request of a GPU"};
  const Param queue{"queue",
                    {"card", "host", "own"},
                    "where descriptors are written: the card's registers, or a ring in the memory of the host or of "
                    "the GPU that posts, with the notifications beside it"};
  const Param connections{"connections", {"1", "2", "4", "8", "16", "32"}, "rings, each with a poster of its own"};
  std::vector<Benchmark> rows;
  const auto add = [&](std::string_view name, std::string_view summary, std::string_view source,
                       std::vector<Param> params, Program (*build)(const Case&)) {
    rows.push_back({name,
                    summary,
                    source,
                    Engine::nic,
                    PlaceKind::gpu,
                    PlaceKind::gpu,
                    Relation::other_host,
                    {{MemKind::device, MemKind::device}},
                    std::move(params),
                    build});
  };
  add("put", "messages that a network card writes into a GPU of another host", "Klenk 4 (KL-1 to KL-3)",
      {control, queue, launch_param(), connections}, messages);
  add("put_ping_pong", "a message to a GPU of another host and one back, each written by a network card",
      "Klenk 4 (KL-1, KL-2)", {control, queue}, round_trip);
  add("get", "messages that a network card fetches from a GPU of another host", "Klenk 2 (KL-7)",
      {control, queue, launch_param(), connections}, fetches);
  add("get_ping_pong",
      "a message that a network card fetches from a GPU of another host: a request there, its answer back",
      "Klenk 2 (KL-7)", {control, queue}, fetch);
  add("post", "descriptors that a GPU posts for a network card", "Klenk 4 (KL-4)", {queue}, posts);
  rows.back().sized = false;
  rows.back().role = Role::latency;
  return rows;
}

}  // namespace linkscope
