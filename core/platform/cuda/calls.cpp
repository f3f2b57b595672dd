#include "platform/cuda/calls.hpp"

#include "base/error.hpp"
#include "platform/cuda/sharing.hpp"
#include "program/allocation.hpp"

namespace linkscope {
namespace {

std::vector<std::unique_ptr<Allocation>>& made_by(CudaSession& session, const Call& call) {
  return session.called.at(call.span->region);
}

}  // namespace

std::string why_no_phase(const Program& program, const Actor& actor, const Call& call) {
  if (!call.span) return "the call '" + call.api + "' is made for no GPU, and is about no memory";
  const auto& region = program.regions[call.span->region];
  try {
    (void)phase_index(region.kind, call.api);
  } catch (const Error& error) {
    return error.what();
  }
  if (auto why = why_another_process(program, actor, call); !why.empty()) return why;
  if (is_shared(region.kind) && region.process == 0)
    return std::string{to_string(region.kind)} + " memory whose phases are timed is another process's";
  const bool by_system = is_pageable(region.kind);
  if (actor.kind == ActorKind::cpu_thread && !by_system)
    return std::string{to_string(region.kind)} + " memory can be allocated only by an actor with a GPU";
  return actor.clock == Clock::host ? "" : "calls can be timed only by the host's clock";
}

void prepare_phases(CudaSession& session, u32 region, Device* device) {
  auto& made = session.called[region];
  const auto& wanted = session.program.regions[region];
  const bool own = wanted.process == session.process;
  for (const auto& actor : session.whole.actors)
    for (const auto& step : actor.loop) {
      const auto* call = std::get_if<Call>(&step);
      if (!call || !call->span || call->span->region != region) continue;
      while (made.size() < call->span->slices)
        made.push_back(std::make_unique<Allocation>(session.driver, device, wanted, call->span->bytes, own));
    }
  if (wanted.kind != MemKind::pool) return;
  for (auto& one : made) one->advance("allocate");  // so that the pool holds enough for all of them
}

void bring_to(CudaSession& session, const Call& call) {
  if (!session.called.contains(call.span->region)) return;  // other processes' memory
  if (is_shared(session.program.regions[call.span->region].kind))
    return bring_shared_to(session, call.span->region, call.api);
  // Frees all before any is made again, because both may not fit at once.
  for (auto& one : made_by(session, call))
    one->bring_to(phases_of(session.program.regions[call.span->region].kind).front());
  for (auto& one : made_by(session, call)) one->bring_to(call.api);
}

void do_phase(CudaSession& session, const ActorState& state, const Call& call) {
  made_by(session, call)[state.iteration % call.span->slices]->advance(call.api);
}

void check_phase(const CudaSession& session, const Call& call, Verdict& verdict) {
  const auto& region = session.program.regions[call.span->region];
  for (const auto& one : session.called.at(call.span->region)) {
    verdict.checked_bytes += call.span->bytes;
    if (!one->in_use() || !one->host()) continue;
    const auto found = page_nodes(one->host(), call.span->bytes);
    (void)one->page_size();  // throws if pages are not as requested
    if (found == "hidden" || found == to_string(region.at)) continue;
    if (verdict.ok) verdict.first_wrong = "pages asked for on " + to_string(region.at) + " are on " + found;
    verdict.ok = false;
    verdict.wrong_bytes += call.span->bytes;
  }
}

}  // namespace linkscope
