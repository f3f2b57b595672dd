#include <cstring>
#include <variant>
#include <vector>

#include "base/descriptor_ops.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/kernel_executors.hpp"
#include "platform/cuda/verification.hpp"
#include "program/origin.hpp"

namespace linkscope {
namespace {

bool same_word(const Span& a, const Span& b) {
  return a.region == b.region && a.offset == b.offset && a.stride == b.stride && a.slices == b.slices;
}

/// The payload of the messages that are sent to a word.
const Span* payload_sent_to(const Program& program, const Span& word) {
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      if (const auto* set = std::get_if<Set>(&step); set && set->payload && same_word(set->word, word))
        return &*set->payload;
  return nullptr;
}

/// Whether a later step of the loop sets the same word.
bool set_again(const Actor& actor, const Set& set) {
  const auto* last = &set;
  for (const auto& step : actor.loop)
    if (const auto* other = std::get_if<Set>(&step); other && same_word(other->word, set.word)) last = other;
  return last != &set;
}

/// Takes what a poster writes.
struct Posted {
  std::vector<Pair> pairs{};
  static Word acquire(Word) { return 0; }
  static void fence() {}
  void store_pair(Word, const Pair& pair) { pairs.push_back(pair); }
};

void compare_descriptor(const CudaSession& session, const Set& set, u64 iteration, Verdict& verdict) {
  Posted expected;
  post_descriptor(post_op(set, set.word.offset), iteration, expected);
  std::vector<Pair> found(expected.pairs.size());
  const u64 bytes = found.size() * sizeof(Pair), offset = set.word.offset_at(iteration);
  const Buffer& buffer = *session.buffers[set.word.region];
  if (buffer.host()) {
    std::memcpy(found.data(), buffer.host() + offset, bytes);
  } else {
    buffer.device()->use();
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, found.data(), buffer.address() + offset, bytes);
  }
  verdict.checked_bytes += bytes;
  if (std::memcmp(found.data(), expected.pairs.data(), bytes) == 0) return;
  const auto& region = session.program.regions[set.word.region];
  if (verdict.ok)
    verdict.first_wrong = to_string(region.at) + "." + to_string(region.kind) + " at byte " + std::to_string(offset) +
                          ", a descriptor that was posted";
  verdict.ok = false;
  verdict.wrong_bytes += bytes;
}

/// What a word grows by in an iteration of all actors that add to it.
u64 added_to(const Program& program, const Span& word) {
  u64 sum = 0;
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      if (const auto* set = std::get_if<Set>(&step); set && set->adds && same_word(set->word, word)) sum += set->value;
  return sum;
}

void compare_word(const CudaSession& session, const Set& set, u64 iteration, Verdict& verdict) {
  // A packed word has its payload first.
  const u64 expected =
                set.adds ? added_to(session.program, set.word) * (iteration + 1) : set.value + iteration * set.step,
            offset = set.word.offset_at(iteration) + (set.payload ? sizeof(u64) : 0);
  const Buffer& buffer = *session.buffers[set.word.region];
  u64 found = 0;
  if (buffer.host()) {
    found = *reinterpret_cast<const u64*>(buffer.host() + offset);
  } else {
    buffer.device()->use();
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &found, buffer.address() + offset, sizeof found);
  }
  verdict.checked_bytes += sizeof found;
  if (found == expected) return;
  const auto& region = session.program.regions[set.word.region];
  if (verdict.ok)
    verdict.first_wrong = to_string(region.at) + "." + to_string(region.kind) + " at byte " + std::to_string(offset) +
                          ", a word that was set";
  verdict.ok = false;
  verdict.wrong_bytes += sizeof found;
}

}  // namespace

void check_op(const CudaSession& session, const ActorState& state, const Step& step, Checks& checks) {
  const Actor& actor = *state.actor;
  if (const auto* move = std::get_if<Move>(&step))
    return check_copied(session, state, pattern_of(session.whole, actor, *move), move->to, checks);
  if (const auto* kernel = std::get_if<Kernel>(&step))
    return executor_of(*kernel).add_checks(session, state, *kernel, checks);
  // A wait for a number from before the start may have received nothing.
  if (const auto* wait = std::get_if<Wait>(&step); wait && wait->payload && !has_come(0, wait->value))
    if (const Span* sent = payload_sent_to(session.program, wait->word))
      return check_copied(session, state, *sent, *wait->payload, checks);
  const auto* set = std::get_if<Set>(&step);
  if (!set || set_again(actor, *set)) return;
  checks.add(session.buffers[set->word.region]->device(), [&session, &state, set](Verdict& into) {
    if (state.iteration == 0) return;
    (set->job ? compare_descriptor : compare_word)(session, *set, state.iteration - 1, into);
  });
}

}  // namespace linkscope
