#include <algorithm>
#include <string>

#include "program/program_text.hpp"

namespace linkscope {
namespace {

constexpr u32 most_block_threads = 1024;

/// Rows in order that do not overlap, of whole words, as a pitched copy can express them.
void check_rows(const Span& span, const std::string& where) {
  const auto& rows = span.rows;
  const auto refuse = [&](const std::string& what) { wrong_program(where, span_text(span) + ": " + what); };
  for (const u64 length : {rows.bytes, rows.pitch, rows.plane_pitch, span.offset, span.stride})
    if (length % 8) refuse("row lengths and pitches must be multiples of 8 B");
  if (span.bytes % rows.bytes) refuse("its bytes are not whole rows");
  if (rows.pitch < rows.bytes) refuse("rows overlap");
  if (rows.in_plane == 0) return;
  if ((span.bytes / rows.bytes) % rows.in_plane) refuse("its rows are not whole planes");
  if (rows.plane_pitch % rows.pitch || rows.plane_pitch < rows.in_plane * rows.pitch)
    refuse("planes are as many pitches apart as they have rows, or more");
}

void check_span(const Program& program, const Span& span, const std::string& where) {
  if (span.region >= program.regions.size())
    wrong_program(where, "region " + std::to_string(span.region) + " does not exist");
  if (span.bytes == 0) wrong_program(where, "a span of no bytes");
  if (span.slices == 0) wrong_program(where, "a span of no slices");
  if (span.rows.bytes) check_rows(span, where);
  const u64 end = span.offset + (span.slices - 1) * span.stride + span.extent();
  if (end > program.regions[span.region].bytes)
    wrong_program(where, span_text(span) + " ends at byte " + std::to_string(end) + " of a region of " +
                             std::to_string(program.regions[span.region].bytes));
}

/// A descriptor has a pair of 16 B for each thing that it asks for. That of a card's registers has words of 8 B.
void check_job(const Program& program, const Span& word, const Job& job, const std::string& where) {
  const u64 asked = u64{job.to.has_value()} + u64{job.signal.has_value()};
  const u64 unit = program.regions[word.region].at.kind == PlaceKind::nic ? 8 : 16;
  if (job.bytes % unit || job.bytes > 128 || job.bytes < unit * asked || word.bytes != job.bytes ||
      word.stride % job.bytes || word.stride == 0 || asked == 0 || (word.offset - job.ring) % job.bytes)
    wrong_program(where,
                  span_text(word) + " is no slot of a ring of descriptors of " + std::to_string(job.bytes) + " B");
  if (job.from.has_value() != job.to.has_value() || (job.to && job.from->bytes != job.to->bytes))
    wrong_program(where, "a descriptor asks for a put of unequal lengths");
  for (const auto* span : {&job.from, &job.to, &job.signal})
    if (*span) check_span(program, **span, where);
}

/// Whether a network card of the program sets the word.
bool is_set_by_card(const Program& program, const Span& word) {
  const auto sets = [&](const Step& step) {
    const auto* set = std::get_if<Set>(&step);
    return set && set->word.region == word.region && set->word.offset == word.offset;
  };
  return std::ranges::any_of(program.actors, [&](const Actor& actor) {
    return actor.kind == ActorKind::nic && std::ranges::any_of(actor.loop, sets);
  });
}

void check_word(const Program& program, const Step& step, const std::string& where) {
  const Span &word = *word_of(step), *payload = payload_of(step);
  check_span(program, word, where);
  if (const Job* job = job_of(step)) return check_job(program, word, *job, where);
  if (const Span* pointer = pointer_of(step)) {
    check_span(program, *pointer, where);
    if (pointer->bytes != sizeof(u64)) wrong_program(where, span_text(*pointer) + " is no read pointer of 8 B");
    if (!is_set_by_card(program, word))
      wrong_program(where, span_text(word) + " is no notification: no network card of the program sets it");
  }
  if (!payload) {
    const bool several = std::holds_alternative<Wait>(step);
    if (several ? word.bytes % sizeof(u64) != 0 : word.bytes != sizeof(u64))
      wrong_program(where, span_text(word) + (several ? " is not whole words of 8 B" : " is not a word of 8 B"));
    return;
  }
  check_span(program, *payload, where);
  if (payload->bytes == 0 || payload->bytes % sizeof(u64) || word.bytes != 2 * payload->bytes)
    wrong_program(where, span_text(word) + " does not have 16 B for each 8 B of " + span_text(*payload));
}

void check_access(const Program& program, const Access& access, const std::string& where) {
  check_span(program, access.span, where);
  if (access.span.rows.bytes) wrong_program(where, "rows in what a kernel accesses: only moves have them");
  if (access.stride == 0) return;
  if (access.stride < access.width)
    wrong_program(where, "accesses of " + std::to_string(access.width) + " B every " + std::to_string(access.stride) +
                             " B overlap");
  if (access.span.bytes < access.width)
    wrong_program(where, span_text(access.span) + " holds no access of " + std::to_string(access.width) + " B");
}

void check_rank_message(const Program& program, const RankMessage& message, const std::string& where) {
  if (message.span.has_value() != message.theirs.has_value())
    wrong_program(where, "a message has bytes on both sides, or on none");
  if (message.ahead && (!message.sends || message.window))
    wrong_program(where, "only sends one after the other start ahead");
  if (!message.span) return;
  for (const auto* span : {&*message.span, &*message.theirs}) {
    check_span(program, *span, where);
    if (span->rows.bytes) wrong_program(where, "rows in a message between ranks");
  }
  if (message.span->bytes != message.theirs->bytes) wrong_program(where, "a message of unequal lengths");
}

void check_step(const Program& program, const Step& step, const std::string& where) {
  std::visit(Overloaded{
                 [&](const Move& m) {
                   check_span(program, m.from, where);
                   check_span(program, m.to, where);
                   if (m.from.bytes != m.to.bytes) wrong_program(where, "a move of unequal lengths");
                   const Rows &from = m.from.rows, &to = m.to.rows;
                   if (from.bytes && to.bytes && from.bytes != to.bytes)
                     wrong_program(where, "a move between rows of " + std::to_string(from.bytes) + " B and of " +
                                              std::to_string(to.bytes) + " B");
                   if (from.in_plane && to.in_plane && from.in_plane != to.in_plane)
                     wrong_program(where, "a move between planes of unequal height");
                 },
                 [&](const Kernel& k) {
                   if (const auto why = why_no_traffic(k); !why.empty()) wrong_program(where, why);
                   for (const auto& a : k.traffic) check_access(program, a, where);
                   if (!k.sm) return;
                   if (!traits_of(k.id).on_chosen_sm || k.dependent_steps == 0)
                     wrong_program(where, "only a chase is on one SM");
                   if (k.shape.blocks != 0)
                     wrong_program(where, "a kernel that is bound to an SM has one block on each");
                 },
                 [&](const Opaque& o) {
                   for (const auto& a : o.traffic) check_access(program, a, where);
                 },
                 [&](const Set&) { check_word(program, step, where); },
                 [&](const Wait&) { check_word(program, step, where); },
                 [&](const Fence&) {},
                 [&](const Call& c) {
                   for (const auto* span : {&c.span, &c.to})
                     if (*span) check_span(program, **span, where);
                   if (c.to && (!c.span || c.span->bytes != c.to->bytes))
                     wrong_program(where, "a copy of unequal lengths");
                 },
                 [&](const Prefetch& p) {
                   check_span(program, p.span, where);
                   if (!pages_move(program.regions[p.span.region].kind))
                     wrong_program(where, "a prefetch of memory whose pages do not move");
                   if (p.discard == Prefetch::Discard::with && p.ranges == 0)
                     wrong_program(where, "pages are discarded and prefetched at once as a batch of ranges");
                 },
                 [&](const Message& m) {
                   if (m.bytes == 0 || m.bytes % 8)
                     wrong_program(where, "a message has a multiple of 8 B, and not 0 B");
                 },
                 [&](const RankMessage& m) { check_rank_message(program, m, where); },
                 [&](const Collective& c) {
                   check_span(program, c.in, where);
                   check_span(program, c.out, where);
                   for (const auto& input : c.inputs) check_span(program, input, where);
                 },
             },
             step);
}

}  // namespace

void validate(const Program& program) {
  if (program.actors.empty()) wrong_program("actors", "the program has no actor");
  if (program.idle < Seconds{0} || program.idle > longest_idle)
    wrong_program("idle", std::to_string(program.idle.count()) + " s: an idle gap lies between 0 s and " +
                              std::to_string(longest_idle.count()) + " s");
  if (program.passes == 0 || (program.passes > 1 && !in_step(program)))
    wrong_program("passes",
                  std::to_string(program.passes) + " passes an iteration need actors that all wait for each other");
  if (program.idle > Seconds{0} && program.most_iterations != 1)
    wrong_program("idle", "only a single iteration can follow an idle gap");
  for (std::size_t i = 0; i < program.actors.size(); ++i) {
    const auto where = "actor a" + std::to_string(i);
    for (const auto& step : program.actors[i].once) check_step(program, step, where + " once");
    for (const auto& step : program.actors[i].loop) check_step(program, step, where + " loop");
    if (program.actors[i].loop.empty()) wrong_program(where, "its loop is empty");
    if (const u32 tenths = program.actors[i].tenths; tenths == 0 || tenths > all_tenths)
      wrong_program(where, "it works 1 to 10 tenths of the time, and not " + std::to_string(tenths));
    if (program.actors[i].tenths < all_tenths && exchanges_words(program.actors[i]))
      wrong_program(where, "others wait for its words, so it cannot rest");
    if (const auto why = why_no_messages(program, program.actors[i]); !why.empty()) wrong_program(where, why);
    if (const auto why = why_no_rank_messages(program.actors[i]); !why.empty()) wrong_program(where, why);
    if (const auto why = why_no_parts(program.actors[i]); !why.empty()) wrong_program(where, why);
    if (const auto why = why_no_collective(program, program.actors[i]); !why.empty()) wrong_program(where, why);
    if (const auto why = why_no_grid(program, program.actors[i]); !why.empty()) wrong_program(where, why);
    if (const u32 threads = program.actors[i].threads; threads == 0 || threads > most_block_threads)
      wrong_program(where, "a block has 1 to " + std::to_string(most_block_threads) + " threads, and not " +
                               std::to_string(threads));
    const bool is_card = program.actors[i].kind == ActorKind::nic;
    if (is_card != (program.actors[i].place.kind == PlaceKind::nic))
      wrong_program(where, std::string{"a "} + to_string(program.actors[i].kind) + " is not at " +
                               to_string(program.actors[i].place));
    if (program.actors[i].kind == ActorKind::gpu_block || is_card)
      for (const auto& step : program.actors[i].loop)
        if (const auto why = why_no_op(program.actors[i], step); !why.empty()) wrong_program(where, why);
    for (const auto& step : program.actors[i].loop)
      if (const auto* kernel = std::get_if<Kernel>(&step);
          kernel && kernel->sm && program.actors[i].kind != ActorKind::stream)
        wrong_program(where, "a CPU has no SMs");
  }
  for (const auto& flow : program.flows)
    if (flow.actor >= program.actors.size())
      wrong_program("flows", "actor a" + std::to_string(flow.actor) + " does not exist");
}

}  // namespace linkscope
