#include "program/program.hpp"

#include <algorithm>
#include <optional>

#include "program/program_text.hpp"

namespace linkscope {
namespace {

void shift_regions(Job& job, u32 by) {
  for (auto* span : {&job.from, &job.to, &job.signal})
    if (*span) (*span)->region += by;
}

void shift_regions(Step& step, u32 by) {
  std::visit(Overloaded{
                 [&](Move& m) {
                   m.from.region += by;
                   m.to.region += by;
                 },
                 [&](Kernel& k) {
                   for (auto& access : k.traffic) access.span.region += by;
                 },
                 [&](Opaque& o) {
                   for (auto& access : o.traffic) access.span.region += by;
                 },
                 [&](Set& s) {
                   s.word.region += by;
                   if (s.payload) s.payload->region += by;
                   if (s.job) shift_regions(*s.job, by);
                 },
                 [&](Wait& w) {
                   w.word.region += by;
                   if (w.payload) w.payload->region += by;
                   if (w.job) shift_regions(*w.job, by);
                   if (w.pointer) w.pointer->region += by;
                 },
                 [&](Fence&) {},
                 [&](Call& c) {
                   for (auto* span : {&c.span, &c.to})
                     if (*span) (*span)->region += by;
                 },
                 [&](Prefetch& p) { p.span.region += by; },
                 [&](Message&) {},
                 [&](RankMessage& m) {
                   if (m.span) m.span->region += by, m.theirs->region += by;
                 },
                 [&](Collective& c) {
                   c.in.region += by;
                   c.out.region += by;
                   for (auto& input : c.inputs) input.region += by;
                 },
             },
             step);
}

}  // namespace

const Span& origin(const Actor& actor, const Move& move) {
  const auto same = [](const Span& a, const Span& b) {
    return a.region == b.region && a.offset == b.offset && a.bytes == b.bytes && a.stride == b.stride &&
           a.slices == b.slices;
  };
  const Span* from = &move.from;
  for (std::size_t step = actor.loop.size(); step-- > 0;)
    if (const auto* earlier = std::get_if<Move>(&actor.loop[step]); earlier && same(earlier->to, *from))
      from = &earlier->from;
  return *from;
}

bool is_bound(const Program& program) {
  return std::all_of(program.regions.begin(), program.regions.end(), [](const Region& r) { return r.bound; }) &&
         std::all_of(program.actors.begin(), program.actors.end(), [](const Actor& a) { return a.bound; });
}

Program together(const std::vector<Program>& programs) {
  Program all;
  const auto between_gpus = [](const Program& p) {
    return std::any_of(p.flows.begin(), p.flows.end(), [](const Flow& f) {
      return f.src.kind == PlaceKind::gpu && f.dst.kind == PlaceKind::gpu && f.src != f.dst;
    });
  };
  std::optional<bool> peer;
  for (const auto& program : programs) {
    if (program.cache != programs.front().cache || program.held_by != programs.front().held_by ||
        program.idle != programs.front().idle || program.passes != programs.front().passes)
      wrong_program(
          "together",
          "the programs ask for different caches, for streams held in different ways, for other idle gaps, or for "
          "other numbers of passes");
    if (between_gpus(program)) {
      if (peer && *peer != program.peer)
        wrong_program("together", "one wants peer access between GPUs and one wants none");
      peer = program.peer;
    }
    const auto first_region = static_cast<u32>(all.regions.size()), first_actor = static_cast<u32>(all.actors.size());
    all.regions.insert(all.regions.end(), program.regions.begin(), program.regions.end());
    u32 first_grid = 0;
    for (const auto& actor : all.actors) first_grid = std::max(first_grid, actor.grid ? *actor.grid + 1 : 0);
    for (auto actor : program.actors) {
      for (auto* steps : {&actor.once, &actor.loop})
        for (auto& step : *steps) shift_regions(step, first_region);
      if (actor.thread_of) *actor.thread_of += first_actor;
      if (actor.grid) *actor.grid += first_grid;
      all.actors.push_back(std::move(actor));
    }
    for (auto flow : program.flows) {
      flow.actor += first_actor;
      all.flows.push_back(std::move(flow));
    }
    if (program.most_iterations && (all.most_iterations == 0 || program.most_iterations < all.most_iterations))
      all.most_iterations = program.most_iterations;
  }
  all.peer = peer.value_or(false);
  all.mps = std::any_of(programs.begin(), programs.end(), [](const Program& program) { return program.mps; });
  all.cache = programs.empty() ? CacheState::cold : programs.front().cache;
  all.held_by = programs.empty() ? HeldBy::kernel : programs.front().held_by;
  all.idle = programs.empty() ? Seconds{0} : programs.front().idle;
  all.passes = programs.empty() ? 1 : programs.front().passes;
  return all;
}

}  // namespace linkscope
