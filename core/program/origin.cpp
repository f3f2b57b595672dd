#include "program/origin.hpp"

namespace linkscope {
namespace {

bool same(const Span& a, const Span& b) {
  return a.region == b.region && a.offset == b.offset && a.bytes == b.bytes && a.stride == b.stride &&
         a.slices == b.slices;
}

}  // namespace

const Span* filled_from(const Program& program, const Span& span) {
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop) {
      if (const auto* move = std::get_if<Move>(&step); move && same(move->to, span)) return &origin(actor, *move);
      const auto* message = std::get_if<RankMessage>(&step);
      if (message && !message->sends && message->span && same(*message->span, span)) return &*message->theirs;
    }
  return nullptr;
}

bool is_computed(const Program& program, const Span& span) {
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      if (const auto* computation = std::get_if<Opaque>(&step))
        for (const auto& access : computation->traffic)
          if (access.dir == Access::Dir::write && access.span.region == span.region) return true;
  return false;
}

bool has_result(const Program& program, const Span& span) {
  const Span* from = &span;
  for (std::size_t buffers = 0; from && buffers <= program.actors.size(); ++buffers) {
    if (is_computed(program, *from)) return true;
    from = has_pattern(program.regions[from->region].content) ? nullptr : filled_from(program, *from);
  }
  return false;
}

const Span& first_filled_from(const Program& program, const Span& span) {
  const Span* from = &span;
  // As many buffers as there are actors may lie between.
  for (std::size_t buffers = 0; buffers < program.actors.size(); ++buffers) {
    const Span* earlier = has_pattern(program.regions[from->region].content) ? nullptr : filled_from(program, *from);
    if (!earlier) break;
    from = earlier;
  }
  return *from;
}

const Span& pattern_of(const Program& program, const Actor& actor, const Move& move) {
  return first_filled_from(program, origin(actor, move));
}

}  // namespace linkscope
