#include "program/allocation.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace linkscope {

std::span<const std::string_view> phases_of(MemKind kind) { return traits_of(kind).phases; }

bool by_owner(MemKind kind, std::string_view phase) {
  return is_shared(kind) &&
         (phase == "allocate" || phase == "export" || phase == "free" || (kind == MemKind::shm && phase == "touch"));
}

std::string why_another_process(const Program& program, const Actor& actor, const Call& call) {
  const auto& region = program.regions[call.span->region];
  const bool owns = by_owner(region.kind, call.api);
  if (actor.process == (owns ? region.process : 0)) return "";
  return "the phase '" + call.api + "' of " + to_string(region.kind) + " memory is done by the process that " +
         (owns ? "owns" : "opens") + " it";
}

std::size_t phase_index(MemKind kind, std::string_view phase) {
  const auto phases = phases_of(kind);
  if (kind == MemKind::pool && phase == "grow") return 0;
  const auto found = std::find(phases.begin(), phases.end(), phase);
  if (found == phases.end())
    throw Error{ErrorKind::usage, std::string{to_string(kind)} + " memory has no phase '" + std::string{phase} + "'"};
  return static_cast<std::size_t>(found - phases.begin());
}

bool allocated_by_calls(const Program& program, u32 region) {
  const auto about = [&](const Step& step) {
    const auto* call = std::get_if<Call>(&step);
    return call && !call->on && call->span && call->span->region == region;
  };
  return std::any_of(program.actors.begin(), program.actors.end(),
                     [&](const Actor& actor) { return std::any_of(actor.loop.begin(), actor.loop.end(), about); });
}

}  // namespace linkscope
