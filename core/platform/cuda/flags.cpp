#include "platform/cuda/flags.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace linkscope {
namespace {

const Set& set_of(const Actor& actor) {
  return std::get<Set>(std::holds_alternative<Set>(actor.loop[0]) ? actor.loop[0] : actor.loop[1]);
}
const Wait& wait_of(const Actor& actor) {
  return std::get<Wait>(std::holds_alternative<Wait>(actor.loop[0]) ? actor.loop[0] : actor.loop[1]);
}
bool waits_first(const Actor& actor) { return std::holds_alternative<Wait>(actor.loop[0]); }

u64* seen_by_cpu(const CudaSession& session, const Span& word) {
  const Buffer& buffer = *session.buffers[word.region];
  // Managed memory has one address for all processors.
  auto* start = buffer.host() ? buffer.host() : reinterpret_cast<std::byte*>(buffer.address());
  return reinterpret_cast<u64*>(start + word.offset);
}

[[noreturn]] void gave_up(const CudaSession& session, const Actor& actor, u64 value) {
  const Wait& wait = wait_of(actor);
  const auto& region = session.program.regions[wait.word.region];
  throw Error{ErrorKind::timeout, to_string(actor.place) + " waited " + std::to_string(wait.timeout.count()) +
                                      " s for a word in " + to_string(region.at) + "." + to_string(region.kind) +
                                      " to become " + std::to_string(value) +
                                      ": the value that the other side sets does not arrive"};
}

WordLoop words_of(const Actor& actor, u64 first, u32 iterations) {
  const Set& set = set_of(actor);
  const Wait& wait = wait_of(actor);
  return {
      set.value + first * set.step, set.step, wait.value + first * wait.step, wait.step, iterations, waits_first(actor),
      wait.timeout.count()};
}

}  // namespace

bool exchanges_flags(const Actor& actor) {
  const auto flag = [](const Step& step) {
    return std::holds_alternative<Set>(step) || std::holds_alternative<Wait>(step);
  };
  return actor.loop.size() == 2 && flag(actor.loop[0]) && flag(actor.loop[1]) &&
         actor.loop[0].index() != actor.loop[1].index();
}

std::string why_no_flags(const Program& program, const Actor& actor) {
  for (const Span* word : {&set_of(actor).word, &wait_of(actor).word}) {
    const auto& region = program.regions[word->region];
    if (word->slices > 1) return "words that are set and waited for do not rotate here";
    if (region.content != Content::zero) return "words that are set and waited for begin at zero here";
    if (region.kind == MemKind::managed) continue;
    if (actor.kind == ActorKind::cpu_thread && region.at.kind == PlaceKind::gpu)
      return "a CPU has no loads from and stores to the memory of " + to_string(region.at) +
             ": it is not mapped for the host (a coherent link such as NVLink-C2C would, or GDRCopy)";
    if (actor.kind == ActorKind::stream && is_pageable(region.kind))
      return "a GPU's threads do not reach pageable memory by its CPU address here";
  }
  return "";
}

CUfunction flag_code(Device& device) { return device.function("flags", "linkscope_flags"); }

void exchange_flags(const CudaSession& session, ActorState& state, u32 iterations) {
  const Set& set = set_of(*state.actor);
  const Wait& wait = wait_of(*state.actor);
  const u64 first = state.iteration;
  state.iteration += iterations;
  if (iterations == 0) return;
  const auto loop = words_of(*state.actor, first, iterations);
  if (!state.stream) {
    if (const auto in_vain = exchange_words(seen_by_cpu(session, set.word), seen_by_cpu(session, wait.word), loop))
      gave_up(session, *state.actor, *in_vain);
    return;
  }
  const auto seen = [&](const Span& word) { return session.address(word.region, *state.device) + word.offset; };
  queue_words(*state.device, state.stream->get(), seen(set.word), seen(wait.word), loop, state.result);
}

void queue_words(Device& device, CUstream stream, CUdeviceptr set, CUdeviceptr wait, const WordLoop& loop,
                 CUdeviceptr gave_up) {
  u64 set_value = loop.set_value, set_step = loop.set_step, wait_value = loop.wait_value, wait_step = loop.wait_step,
      count = loop.count;
  auto timeout_ns = static_cast<u64>(loop.timeout_s * 1e9);
  unsigned wait_before = loop.waits_first;
  void* arguments[] = {&set,       &set_value, &set_step,    &wait,       &wait_value,
                       &wait_step, &count,     &wait_before, &timeout_ns, &gave_up};
  device.launch(flag_code(device), 1, 1, stream, arguments);
}

void check_waits(const CudaSession& session) {
  for (const auto& state : session.actors) {
    if (!state.stream || !exchanges_flags(*state.actor)) continue;
    u64 failed = 0;
    state.device->use();
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &failed, state.result, sizeof failed);
    if (failed) gave_up(session, *state.actor, failed);
  }
}

void check_flags(const CudaSession& session, const ActorState& state, Verdict& verdict) {
  if (state.iteration == 0) return;
  const Set& set = set_of(*state.actor);
  const Buffer& buffer = *session.buffers[set.word.region];
  const u64 expected = set.value + (state.iteration - 1) * set.step;
  u64 found = 0;
  if (buffer.host()) {
    found = *seen_by_cpu(session, set.word);
  } else {
    buffer.device()->use();
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &found, buffer.address() + set.word.offset, sizeof found);
  }
  verdict.checked_bytes += sizeof found;
  if (found == expected) return;
  const auto& region = session.program.regions[set.word.region];
  if (verdict.ok)
    verdict.first_wrong = to_string(region.at) + "." + to_string(region.kind) + " at byte " +
                          std::to_string(set.word.offset) + ", a word that was set";
  verdict.ok = false;
  verdict.wrong_bytes += sizeof found;
}

}  // namespace linkscope
