// Network cards that take descriptors from threads and say by notifications what they have done: the cost of a post and of
// a notification for CPU and GPU threads (Klenk et al., KL-6 to KL-9), and of a message for the card.
#include <algorithm>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {
namespace {

bool same_word(const Span& a, const Span& b) { return a.region == b.region && a.offset == b.offset; }

bool is_gpu_thread(const Actor& actor) { return actor.kind == ActorKind::gpu_block; }

}  // namespace

/// What performs an op at a node.
Stage::By Compiler::at_stage(Node by) const {
  return machine_.nic(by) ? Stage::By::card : machine_.is_gpu(by) ? Stage::By::threads : Stage::By::thread;
}

/// Seconds of a load at the place of the memory. A card's own registers take none.
double Compiler::load_time(Node at) const {
  if (machine_.nic(at)) return 0;
  return machine_.is_gpu(at) ? machine_.kernel->load : machine_.numa[at].load;
}

/// Whether a card sets or awaits the word, or its registers have it.
bool Compiler::is_card_word(const Program& program, const Actor& actor, const Span& word) const {
  return actor.kind == ActorKind::nic || program.regions[word.region].at.kind == PlaceKind::nic;
}

/// The words of cards, and words in their registers.
Support Compiler::supports_card_word(const Program& program, const Actor& actor, const Step& step) const {
  const auto& region = program.regions[word_of(step)->region];
  const Node at = node(region.at), by = at_words(actor);
  if (machine_.nic(at) && by != at) {
    if (region.at.host != actor.place.host || !std::holds_alternative<Set>(step) || machine_.nic(by))
      return Support::no("only threads of its own host write registers of " + to_string(region.at));
    return {};
  }
  if (by == at) return {};
  if (is_pageable(region.kind) || region.at.kind == PlaceKind::disk || region.kind == MemKind::managed)
    return Support::no("network cards reach pinned host memory and GPU memory only");
  if (!routes_.between(by, at) || (std::holds_alternative<Wait>(step) && region.at.host != actor.place.host))
    return Support::no(to_string(actor.place) + " does not reach " + to_string(region.at));
  if (machine_.is_gpu(at) && !machine_.kernel)
    return Support::no("the model " + machine_.name + " does not say how long a load takes: its file has no [kernel]");
  if (machine_.is_gpu(at) && !machine_.nic(by)->gpu_write)
    return Support::no("the model " + machine_.name +
                       " does not say that its network cards write GPU memory directly: gpu_write_gbps of its [[nic]]");
  return {};
}

/// A descriptor for a card.
Support Compiler::supports_post(const Actor& actor, const Region& ring, const Job& job, const Nic& card) const {
  if (!card.posting)
    return Support::no("the model " + machine_.name + " does not say how " + to_string(card.place) +
                       " takes descriptors: queues of its [[nic]]");
  const auto& posting = *card.posting;
  const bool in_registers = ring.at.kind == PlaceKind::nic;
  if (posting.in_registers != in_registers)
    return Support::no(to_string(card.place) + " takes descriptors " +
                       (posting.in_registers ? "in its registers, and not from rings in memory"
                                             : "from rings in memory, and not in its registers"));
  if (job.bytes != posting.descriptor_bytes)
    return Support::no(to_string(card.place) + " takes descriptors of " + bytes_text(posting.descriptor_bytes) +
                       ", and not of " + bytes_text(job.bytes));
  if (actor.kind == ActorKind::stream) return Support::no("GPU blocks and CPU threads post descriptors");
  return {};
}

/// A card with registers notifies in host memory, where its driver has made the queue; a card with rings in memory has its
/// queue of notifications in any memory.
Support Compiler::supports_notification(const Program& program, const Actor& actor, const Span& word) const {
  const Nic* card = machine_.nic(node(notifier(program, word)->place));
  const auto& region = program.regions[word.region];
  if (!card->posting)
    return Support::no("the model " + machine_.name + " does not say what a notification of " + to_string(card->place) +
                       " costs: queues of its [[nic]]");
  if (card->posting->in_registers && region.at.kind == PlaceKind::gpu)
    return Support::no(to_string(card->place) + " notifies in host memory, and not in " + to_string(region.at));
  if (actor.kind == ActorKind::stream) return Support::no("GPU blocks and CPU threads take notifications");
  return {};
}

/// The card that sets a word.
const Actor* Compiler::notifier(const Program& program, const Span& word) const {
  const auto sets = [&](const Step& step) {
    const auto* set = std::get_if<Set>(&step);
    return set && same_word(set->word, word);
  };
  const auto found = std::ranges::find_if(program.actors, [&](const Actor& actor) {
    return actor.kind == ActorKind::nic && std::ranges::any_of(actor.loop, sets);
  });
  return found == program.actors.end() ? nullptr : &*found;
}

/// The card that a step posts a descriptor to: the ring is in its registers, or the actor's next word there tells it.
const Nic* Compiler::card_of(const Program& program, const Actor& actor, const Set& post) const {
  if (!post.job) return nullptr;
  const auto sets_register = [&](const Step& step) {
    const auto* set = std::get_if<Set>(&step);
    return set && program.regions[set->word.region].at.kind == PlaceKind::nic;
  };
  const auto itself =
      std::ranges::find_if(actor.loop, [&](const Step& step) { return std::get_if<Set>(&step) == &post; });
  const auto found = std::find_if(itself, actor.loop.end(), sets_register);
  if (found == actor.loop.end()) return nullptr;
  return machine_.nic(node(program.regions[std::get<Set>(*found).word.region].at));
}

/// Seconds of a thread until it has posted. A ring that is not the thread's own memory has the descriptor before its word
/// tells the card.
double Compiler::post_time(const Program& program, const Actor& actor, const Set& post, const Nic& card) const {
  const double made = is_gpu_thread(actor) ? card.posting->gpu_post : card.posting->cpu_post;
  const Node ring = node(program.regions[post.word.region].at), by = at_words(actor);
  if (ring == by || machine_.nic(ring)) return made;
  Path way;
  add_links(way, by, ring);
  return made + 2 * way.latency;
}

/// Seconds of a thread that takes a notification, besides its polls.
double Compiler::take_time(const Program& program, const Actor& actor, const Wait& wait) const {
  if (!wait.pointer) return 0;
  const auto& posting = *machine_.nic(node(notifier(program, wait.word)->place))->posting;
  return is_gpu_thread(actor) ? posting.gpu_take : posting.cpu_take;
}

/// Seconds until a card has the first bytes of what its loop copies: a request to the memory, and the answer. Memory of
/// another host is read by the card of that host, so the request is a message to that card.
double Compiler::read_time(const Program& program, const Actor& card) const {
  double time = 0;
  for (const auto& step : card.loop)
    if (const auto* move = std::get_if<Move>(&step)) {
      const Node from = node(program.regions[move->from.region].at);
      Path way;
      add_links(way, node(card.place), from);
      const double answered =
          program.regions[move->from.region].at.host == card.place.host ? 0 : *machine_.nic(node(card.place))->message;
      time = std::max(time, answered + 2 * way.latency + load_time(from));
    }
  return time;
}

/// Seconds of a card for each message of its loop, besides the bytes.
double Compiler::card_time(const Program& program, const Actor& card) const {
  const Nic& nic = *machine_.nic(node(card.place));
  for (const auto& step : card.loop) {
    const auto* take = std::get_if<Wait>(&step);
    if (!take || !take->job || program.regions[take->word.region].at.kind != PlaceKind::nic) continue;
    const auto posts = [&](const Step& other) {
      const auto* set = std::get_if<Set>(&other);
      return set && set->job && same_word(set->word, take->word);
    };
    const bool by_gpu = std::ranges::any_of(program.actors, [&](const Actor& actor) {
      return is_gpu_thread(actor) && std::ranges::any_of(actor.loop, posts);
    });
    if (by_gpu) return nic.posting->gpu_message.value_or(*nic.message);
  }
  return *nic.message;
}

}  // namespace linkscope::sim
