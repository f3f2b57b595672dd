// How messages between ranks are exchanged, and what copies and waits around them.
#include <algorithm>
#include <array>
#include <map>

#include "base/error.hpp"
#include "benchmarks/chunks.hpp"
#include "benchmarks/copies.hpp"
#include "benchmarks/messages.hpp"
#include "benchmarks/rank_programs.hpp"

namespace linkscope {
namespace {

/// One end of the messages: a rank, and its memory for them.
struct End {
  u32 rank;
  RankPlaces at;
  MemKind memory;
  bool staged;

  [[nodiscard]] Place place() const { return memory == MemKind::device ? *at.gpu : at.numa; }
};

/// `process`: of a place that is no rank.
End end_of(const Case& c, const Place& rank, MemKind memory, u32 process) {
  if (rank.kind == PlaceKind::numa) return {process, {rank}, memory, false};
  if (rank.index >= c.ranks.size())
    throw Error{ErrorKind::usage, c.benchmark + ": there is no " + to_string(rank) + "; there are " +
                                      std::to_string(c.ranks.size()) + " ranks"};
  const End end{rank.index, c.ranks[rank.index], memory,
                memory == MemKind::device && c.engine != Engine::nixl && c.param("way", "staged") != "aware"};
  if (memory == MemKind::device && !end.at.gpu) throw Error{ErrorKind::unsupported, to_string(rank) + " has no GPU"};
  return end;
}

End first_of(const Case& c) { return end_of(c, c.src, c.src_memory, 0); }
End second_of(const Case& c) { return end_of(c, c.dst, c.dst_memory, 1); }

/// The bytes that a message has.
u64 message_chunk(const Case& c) { return c.param("way", "staged") == "double" ? chunk_bytes(c) : c.bytes; }

class Builder {
 public:
  explicit Builder(const Case& c) : case_{c}, chunk_{message_chunk(c)} {
    program.held_by = HeldBy::nothing;
    program.passes = static_cast<u32>(c.bytes ? c.bytes / chunk_ : 1);
    in_chunks_ = c.param("way", "staged") == "double";
    slots_ = in_chunks_ ? c.number("slots", "2") : 1;
    ahead_ = c.param("sends", "ahead") == "ahead" ? slots_ - 1 : 0;
  }

  /// The memory of a message, which a rank sends or receives.
  Span add_memory(const End& end, Content content) {
    const u64 stride = slice_stride(chunk_);
    return add(end.rank, end.place(), end.memory, program.passes * stride, content,
               {0, 0, chunk_, stride, program.passes});
  }
  /// The pinned slots of a staged end.
  Span add_slots(const End& end) {
    const u64 stride = slice_stride(chunk_);
    return add(end.rank, end.at.numa, MemKind::pinned, slots_ * stride, Content::poison,
               {0, 0, chunk_, stride, slots_});
  }
  /// Words by which the host thread of a stream and the thread with the messages wait for each other.
  std::pair<Span, Span> add_words(const End& end) {
    const Span first = add(end.rank, end.at.numa, MemKind::pinned, 2 * line_bytes, Content::zero, {0, 0, word_bytes});
    return {first, {first.region, line_bytes, word_bytes}};
  }

  u32 add_thread(const End& end, std::vector<Step> loop) {
    Actor actor;
    actor.place = end.at.numa;
    actor.kind = ActorKind::cpu_thread;
    return add(end.rank, std::move(actor), std::move(loop));
  }
  u32 add_stream(const End& end, std::vector<Step> loop) {
    Actor actor;
    actor.place = *end.at.gpu;
    actor.cpu = end.at.numa;
    return add(end.rank, std::move(actor), std::move(loop));
  }
  using Bytes = std::optional<Span>;
  [[nodiscard]] RankMessage send(u32 peer, const Bytes& from, const Bytes& to, u32 window = 0) const {
    return {true, peer, from, to, window, case_.engine};
  }
  [[nodiscard]] RankMessage receive(u32 peer, const Bytes& to, const Bytes& from, u32 window = 0) const {
    return {false, peer, to, from, window, case_.engine};
  }
  /// A send of a slot, while those of the other slots may be under way.
  [[nodiscard]] RankMessage send_slot(u32 peer, const Span& from, const Span& to) const {
    auto message = send(peer, from, to);
    message.ahead = ahead_;
    return message;
  }
  /// After send_slot(): the slots whose messages have come.
  [[nodiscard]] Set empties(const Span& emptied) const { return {emptied, 1 - u64{ahead_}, 1}; }
  [[nodiscard]] Wait wait(const Span& which, u64 value) const {
    return {which, value, 1, chunk_timeout(chunk_, Seconds{5.0})};
  }
  /// The first messages of a ring wait for no slot.
  [[nodiscard]] Wait wait_for_slot(const Span& emptied) const { return wait(emptied, 1 - u64{slots_}); }

  void add_flow(u32 actor, const Place& src, const Place& dst) {
    const bool measured = program.flows.empty();
    program.flows.push_back(
        {actor, src, dst, case_.src_memory, case_.dst_memory, measured ? case_.bytes : 0, measured});
  }

  /// The program; actors that only serve others get background flows without bytes.
  Program finished() {
    // MPI's messages find their bytes in the sender's cache, as in other tools. Copy engines know no cache.
    const bool copies = std::any_of(program.actors.begin(), program.actors.end(),
                                    [](const Actor& actor) { return actor.kind == ActorKind::stream; });
    program.cache = copies ? CacheState::cold : CacheState::hot;
    for (u32 actor = 0; actor < program.actors.size(); ++actor)
      if (std::none_of(program.flows.begin(), program.flows.end(), [&](const Flow& f) { return f.actor == actor; }))
        add_flow(actor, case_.src, case_.dst);
    return std::move(program);
  }

  [[nodiscard]] bool in_chunks() const { return in_chunks_; }

  Program program;

 private:
  Span add(u32 rank, const Place& at, MemKind kind, u64 bytes, Content content, Span span) {
    Region region{at, kind, bytes, content};
    region.process = rank;
    span.region = static_cast<u32>(program.regions.size());
    program.regions.push_back(std::move(region));
    return span;
  }
  u32 add(u32 rank, Actor actor, std::vector<Step> loop) {
    actor.process = rank;
    actor.clock = Clock::host;  // events of one process do not order the work of another
    actor.loop = std::move(loop);
    program.actors.push_back(std::move(actor));
    return static_cast<u32>(program.actors.size()) - 1;
  }

  const Case& case_;
  u64 chunk_;
  bool in_chunks_;
  u32 slots_, ahead_;  // pinned slots of a staged end, and messages under way while the next one starts
};

/// A rank's side of round trips: its own message, and room for that of the other.
struct Side {
  End end;
  std::optional<Span> out{}, in{};         // as MPI has them
  std::optional<Span> source{}, target{};  // of a staged end: the memory of the GPU
};

Side add_side(Builder& builder, const Case& c, const End& end) {
  Side side{end};
  if (c.bytes == 0) return side;
  auto& out = side.end.staged ? side.source : side.out;
  auto& in = side.end.staged ? side.target : side.in;
  out = builder.add_memory(side.end, Content::pattern);
  in = builder.add_memory(side.end, Content::poison);
  if (!side.end.staged) return side;
  side.out = builder.add_slots(side.end);
  side.in = builder.add_slots(side.end);
  return side;
}

/// The steps of a side that sends its message and then receives the other one, or the reverse.
struct Steps {
  std::vector<Step> out, in;
};

std::vector<Step> in_turn(Steps steps, bool begins) {
  auto &first = begins ? steps.out : steps.in, &then = begins ? steps.in : steps.out;
  first.insert(first.end(), std::make_move_iterator(then.begin()), std::make_move_iterator(then.end()));
  return std::move(first);
}

/// The actors of a side of round trips in chunks. All chunks of a message come before the first one of the answer is
/// copied, while copies and messages of one message's chunks overlap. Returns the actor whose time is that of the trips.
u32 add_actors_in_chunks(Builder& builder, const Side& side, const Side& other, bool begins) {
  const auto add = [&](u32 actor, const Steps& steps) {
    builder.program.actors[actor].first_steps = static_cast<u32>((begins ? steps.out : steps.in).size());
    return actor;
  };
  const auto send = builder.send_slot(other.end.rank, *side.out, *other.in);
  const auto receive = builder.receive(other.end.rank, side.in, other.out);
  if (!side.end.staged) {
    const Steps messages{{send}, {receive}};
    return add(builder.add_thread(side.end, in_turn(messages, begins)), messages);
  }
  const auto [filled, emptied] = builder.add_words(side.end);
  const auto [arrived, taken] = builder.add_words(side.end);
  const Steps copies{{builder.wait_for_slot(emptied), Move{*side.source, *side.out, Engine::ce}, Set{filled, 1, 1}},
                     {builder.wait(arrived, 1), Move{*side.in, *side.target, Engine::ce}, Set{taken, 1, 1}}};
  const Steps messages{{builder.wait(filled, 1), send, builder.empties(emptied)},
                       {builder.wait_for_slot(taken), receive, Set{arrived, 1, 1}}};
  const u32 stream = add(builder.add_stream(side.end, in_turn(copies, begins)), copies);
  add(builder.add_thread(side.end, in_turn(messages, begins)), messages);
  return stream;
}

/// The actors of a side. With staging, a stream's host thread and the thread with the messages take turns. Returns the
/// actor whose time is that of the round trips.
u32 add_actors(Builder& builder, const Side& side, const Side& other, bool begins) {
  if (builder.in_chunks()) return add_actors_in_chunks(builder, side, other, begins);
  const auto send = builder.send(other.end.rank, side.out, other.in),
             receive = builder.receive(other.end.rank, side.in, other.out);
  if (!side.end.staged)
    return builder.add_thread(side.end, begins ? std::vector<Step>{send, receive} : std::vector<Step>{receive, send});
  const auto [filled, arrived] = builder.add_words(side.end);
  const Move down{*side.source, *side.out, Engine::ce}, up{*side.in, *side.target, Engine::ce};
  const Wait has_arrived = builder.wait(arrived, 1), has_filled = builder.wait(filled, 1);
  const Set fills{filled, 1, 1}, arrives{arrived, 1, 1};
  if (begins) {
    const u32 stream = builder.add_stream(side.end, {down, fills, has_arrived, up});
    builder.add_thread(side.end, {has_filled, send, receive, arrives});
    return stream;
  }
  const u32 stream = builder.add_stream(side.end, {has_arrived, up, down, fills});
  builder.add_thread(side.end, {receive, arrives, has_filled, send});
  return stream;
}

}  // namespace

Program build_ping_pong(const Case& c) {
  Builder builder{c};
  const Side here = add_side(builder, c, first_of(c)), there = add_side(builder, c, second_of(c));
  builder.add_flow(add_actors(builder, here, there, true), c.src, c.dst);
  builder.add_flow(add_actors(builder, there, here, false), c.dst, c.src);
  return builder.finished();
}

namespace {

/// A stream of messages in one direction.
Program build_message_rate(const Case& c) {
  Builder builder{c};
  const End from = first_of(c), to = second_of(c);
  const bool staged = from.staged || to.staged;
  const u32 window = staged ? 0 : c.number("window", "64");
  const Span source = builder.add_memory(from, Content::pattern), target = builder.add_memory(to, Content::poison);
  const Span out = from.staged ? builder.add_slots(from) : source, in = to.staged ? builder.add_slots(to) : target;
  const auto send = builder.send(to.rank, out, in, window), receive = builder.receive(from.rank, in, out, window);
  u32 last = 0;
  if (from.staged) {
    const auto [filled, emptied] = builder.add_words(from);
    builder.add_stream(from, {builder.wait_for_slot(emptied), Move{source, out, Engine::ce}, Set{filled, 1, 1}});
    builder.add_thread(from, {builder.wait(filled, 1), builder.send_slot(to.rank, out, in), builder.empties(emptied)});
  } else {
    builder.add_thread(from, {staged ? builder.send_slot(to.rank, out, in) : send});
  }
  if (to.staged) {
    const auto [filled, emptied] = builder.add_words(to);
    builder.add_thread(to, {builder.wait_for_slot(emptied), receive, Set{filled, 1, 1}});
    last = builder.add_stream(to, {builder.wait(filled, 1), Move{in, target, Engine::ce}, Set{emptied, 1, 1}});
  } else {
    last = builder.add_thread(to, {receive});
  }
  builder.add_flow(last, c.src, c.dst);
  return builder.finished();
}

/// The thread of a rank that sends a message while it receives one. A staged end fills and empties its slots by two streams.
u32 add_exchange(Builder& builder, const Side& side, const Side& other, u32 window) {
  const auto receive = builder.receive(other.end.rank, side.in, other.out, window),
             send = builder.send(other.end.rank, side.out, other.in, window);
  if (!side.end.staged) return builder.add_thread(side.end, {receive, send});
  const auto [filled, emptied] = builder.add_words(side.end);
  const auto [arrived, taken] = builder.add_words(side.end);
  builder.add_stream(side.end,
                     {builder.wait_for_slot(emptied), Move{*side.source, *side.out, Engine::ce}, Set{filled, 1, 1}});
  builder.add_thread(side.end, {builder.wait(filled, 1), builder.wait_for_slot(taken), send, receive,
                                Set{emptied, 1, 1}, Set{arrived, 1, 1}});
  return builder.add_stream(side.end,
                            {builder.wait(arrived, 1), Move{*side.in, *side.target, Engine::ce}, Set{taken, 1, 1}});
}

}  // namespace

Program build_both(const Case& c) {
  if (c.param("bidirectional", "false") != "true") return build_message_rate(c);
  Builder builder{c};
  const Side here = add_side(builder, c, first_of(c)), there = add_side(builder, c, second_of(c));
  const bool staged = here.end.staged || there.end.staged;
  const u32 window = staged ? 1 : c.number("window", "64");
  const u32 first = add_exchange(builder, here, there, window), second = add_exchange(builder, there, here, window);
  builder.program.flows = {{second, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes},
                           {first, c.dst, c.src, c.dst_memory, c.src_memory, c.bytes}};
  return builder.finished();
}

namespace {

using Pair = std::pair<Place, Place>;

/// The pair of the case, then those of `with`.
std::vector<Pair> pairs_of(const Case& c) {
  std::vector<Pair> found{{c.src, c.dst}};
  const auto with = c.param("with", "none");
  if (with == "none") return found;
  for (const auto& pair : parse_paths(with)) {
    const auto text = to_string(pair.first) + "->" + to_string(pair.second);
    if (pair.first.kind != PlaceKind::rank || pair.second.kind != PlaceKind::rank || pair.first == pair.second)
      misfit(c, "with=" + text + " is no pair of ranks; name two, as in with=rank:2->rank:3");
    if (std::find(found.begin(), found.end(), pair) != found.end())
      misfit(c, "the pair " + text + " is named twice; name each pair once");
    found.push_back(pair);
  }
  return found;
}

}  // namespace

Program build_rates_of_pairs(const Case& c) {
  Builder builder{c};
  const u32 window = c.number("window", "16");
  const auto pairs = pairs_of(c);
  std::map<u32, std::pair<End, std::vector<Step>>> ranks;
  const auto loop_of = [&](const End& end) -> std::vector<Step>& {
    return ranks.try_emplace(end.rank, end, std::vector<Step>{}).first->second.second;
  };
  for (const auto& [src, dst] : pairs) {
    const End from = end_of(c, src, c.src_memory, 0), to = end_of(c, dst, c.dst_memory, 1);
    const Span source = builder.add_memory(from, Content::pattern), target = builder.add_memory(to, Content::poison);
    loop_of(to).emplace_back(builder.receive(from.rank, target, source, window));
    loop_of(from).emplace_back(builder.send(to.rank, source, target, window));
  }
  std::map<u32, u32> actors;
  for (auto& [rank, of] : ranks) actors[rank] = builder.add_thread(of.first, std::move(of.second));
  for (const auto& [src, dst] : pairs)
    builder.program.flows.push_back({actors.at(dst.index), src, dst, c.src_memory, c.dst_memory, c.bytes});
  return builder.finished();
}

Program build_trips_of_pairs(const Case& c) {
  Builder builder{c};
  std::vector<u32> taken;
  for (const auto& [src, dst] : pairs_of(c)) {
    for (const auto* rank : {&src, &dst}) {
      if (std::find(taken.begin(), taken.end(), rank->index) != taken.end())
        misfit(c, to_string(*rank) + " is in two pairs; round trips wait for each other, so name each rank once");
      taken.push_back(rank->index);
    }
    const Side here = add_side(builder, c, end_of(c, src, c.src_memory, 0)),
               there = add_side(builder, c, end_of(c, dst, c.dst_memory, 1));
    const u32 begins = add_actors(builder, here, there, true);
    add_actors(builder, there, here, false);
    builder.program.flows.push_back({begins, src, dst, c.src_memory, c.dst_memory, c.bytes});
  }
  return builder.finished();
}

Program rank_trips(const Case& c, const Place& from, const Place& to, u64 bytes) {
  Case between = c;
  between.src = from;
  between.dst = to;
  between.src_memory = between.dst_memory = MemKind::pageable;
  between.bytes = bytes;
  between.params.clear();
  return build_ping_pong(between);
}

}  // namespace linkscope
