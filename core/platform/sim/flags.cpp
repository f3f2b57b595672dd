// The cost of words that are set and polled, and of fences.
#include <algorithm>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

Op count_op(OpKind kind, u64 word, u64 value, u64 step, std::string what) {
  constexpr double patience_ns = 60e9;
  Op op;
  Stage stage;
  stage.by = Stage::By::thread;
  op.stages.push_back(std::move(stage));
  Flag flag;
  flag.op.kind = kind;
  flag.op.from = flag.op.to = {word, 0, 1};
  flag.op.bytes = sizeof(Word);
  flag.op.value = value;
  flag.op.step = step;
  flag.op.timeout_ns = static_cast<Word>(patience_ns);
  flag.what = std::move(what);
  op.flag = std::move(flag);
  return op;
}

/// The processor that sets and awaits an actor's words: a stream's host thread does it.
Node Compiler::at_words(const Actor& actor) const {
  const bool itself = actor.kind == ActorKind::gpu_block || actor.kind == ActorKind::nic;
  return itself ? node(actor.place) : host_of(actor);
}

Support Compiler::supports_flag(const Program& program, const Actor& actor, const Span& word) const {
  const auto& region = program.regions[word.region];
  if (region.at.kind == PlaceKind::disk) return Support::no("no words are set in files");
  const Node at = node(region.at), by = at_words(actor);
  if (region.kind == MemKind::managed)
    return Support::no("the model's managed memory is touched and prefetched: no words are set in it yet");
  if (region.at.host != actor.place.host)
    return Support::no(to_string(region.at) + " is on another host than " + to_string(actor.place));
  if (!machine_.is_gpu(by) && machine_.is_gpu(at))
    return Support::no("a CPU has no loads from and stores to the memory of " + to_string(region.at) +
                       ": it is not mapped for the host");
  if (machine_.is_gpu(by) && is_pageable(region.kind))
    return Support::no("a GPU's threads do not reach pageable memory");
  if (machine_.is_gpu(at) && at != by && !machine_.peer(at, by))
    return Support::no("there is no peer access between " + to_string(region.at) + " and " + to_string(actor.place) +
                       " on this machine");
  if (machine_.is_gpu(at) && !machine_.kernel)
    return Support::no("the model " + machine_.name + " does not say how long a load takes: its file has no [kernel]");
  if (!machine_.is_gpu(at) && machine_.numa[at].load == 0)
    return Support::no("the model " + machine_.name + " does not say how long a load from " + to_string(region.at) +
                       " takes: load_us");
  return {};
}

/// The word that an actor sets or waits for, and its distance.
Flag Compiler::flag(const Program& program, const Actor& actor, const Span& word) const {
  const Node at = node(program.regions[word.region].at), by = at_words(actor);
  Path way;
  if (at != by) add_links(way, by, at);
  Flag flag;
  flag.op.from = flag.op.to = {address_of(word.region, word.offset), word.stride, word.slices};
  flag.op.bytes = word.bytes;
  if (actor.kind == ActorKind::nic) flag.way = read_time(program, actor) + way.latency;
  else flag.way = goes_to_other_host(program, actor, word) ? message_time(way) : way.latency;
  flag.poll = 2 * way.latency + load_time(at);
  return flag;
}

Op Compiler::op(const Program& program, const Actor& actor, const Set& set) const {
  const Node at = node(program.regions[set.word.region].at), by = at_words(actor);
  Op op;
  op.bytes = op.chunk_bytes = set.word.bytes;
  Stage stage = set.payload && machine_.is_gpu(by) ? packed(program, actor, set) : Stage{};
  stage.by = at_stage(by);
  // The host thread of a stream first sees that the copies before are done.
  if (actor.kind == ActorKind::stream) stage.setup = machine_.costs.sync;
  // What an addition or a descriptor follows is visible before it.
  if (const Nic* card = card_of(program, actor, set)) stage.setup += post_time(program, actor, set, *card);
  else if (set.adds || set.job) stage.setup += acknowledged(program, actor);
  if (at != by) stage.path.links = *routes_.between(by, at);
  op.stages.push_back(std::move(stage));
  op.flag = flag(program, actor, set.word);
  op.flag->op.kind = set.adds ? OpKind::add : OpKind::set;
  op.flag->op.value = set.value;
  op.flag->op.step = set.step;
  return op;
}

Op Compiler::op(const Program& program, const Actor& actor, const Wait& wait) const {
  const auto& region = program.regions[wait.word.region];
  Op op;
  Stage stage;
  stage.by = at_stage(at_words(actor));
  op.stages.push_back(std::move(stage));
  op.flag = flag(program, actor, wait.word);
  op.flag->take = take_time(program, actor, wait);
  if (wait.payload) op.flag->read = packed_read_time(actor, wait.word, *op.flag);
  op.flag->op.kind = OpKind::wait;
  if (wait.payload || wait.job || wait.pointer) op.flag->op.bytes = sizeof(Word);  // one number for all of it
  op.flag->op.value = wait.value;
  op.flag->op.step = wait.step;
  op.flag->op.timeout_ns = static_cast<Word>(wait.timeout.count() * 1e9);
  op.flag->what = to_string(actor.place) + " waited " + std::to_string(wait.timeout.count()) + " s for a word in " +
                  to_string(region.at) + "." + to_string(region.kind);
  return op;
}

/// Seconds until the farthest store of the loop is acknowledged.
double Compiler::acknowledged(const Program& program, const Actor& actor) const {
  const Node by = node(actor.place);
  double time = 0;
  for (const auto& step : actor.loop)
    for (const auto& touch : touches(step)) {
      const Node at = node(program.regions[touch.span.region].at);
      if (!touch.writes || at == by) continue;
      Path way;
      add_links(way, by, at);
      time = std::max(time, 2 * way.latency);
    }
  return time;
}

Op Compiler::fence(const Program& program, const Actor& actor) const {
  Op op;
  Stage stage;
  stage.by = machine_.is_gpu(node(actor.place)) ? Stage::By::threads : Stage::By::thread;
  stage.setup = acknowledged(program, actor);
  op.stages.push_back(std::move(stage));
  op.flag = Flag{};
  op.flag->op.kind = OpKind::fence;
  return op;
}

}  // namespace linkscope::sim
