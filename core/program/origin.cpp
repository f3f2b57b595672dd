#include "program/origin.hpp"

namespace linkscope {
namespace {

bool same(const Span& a, const Span& b) {
  return a.region == b.region && a.offset == b.offset && a.bytes == b.bytes && a.stride == b.stride &&
         a.slices == b.slices;
}

/// The origin of the move of any actor that fills a span; null: nobody fills it.
const Span* filled_from(const Program& program, const Span& span) {
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      if (const auto* move = std::get_if<Move>(&step); move && same(move->to, span)) return &origin(actor, *move);
  return nullptr;
}

}  // namespace

const Span& pattern_of(const Program& program, const Actor& actor, const Move& move) {
  const Span* from = &origin(actor, move);
  // As many buffers as there are actors may lie between.
  for (std::size_t buffers = 0; buffers < program.actors.size(); ++buffers) {
    const Span* earlier =
        program.regions[from->region].content == Content::pattern ? nullptr : filled_from(program, *from);
    if (!earlier) break;
    from = earlier;
  }
  return *from;
}

}  // namespace linkscope
