#include "platform/cuda/ucx.hpp"

#include <set>

#include "base/error.hpp"
#include "host/peer_texts.hpp"

namespace linkscope {
namespace {

bool is_by_ucx(const Step& step) {
  const auto* message = std::get_if<RankMessage>(&step);
  return message && message->by == Engine::ucx;
}

/// The processes with which this one exchanges messages of UCX.
std::set<u32> peers_of(const CudaSession& session) {
  std::set<u32> found;
  for (const auto& actor : session.program.actors)
    for (const auto& step : actor.loop)
      if (is_by_ucx(step)) found.insert(std::get<RankMessage>(step).peer);
  return found;
}

}  // namespace

const Ucx& UcxOfProcess::library() {
  if (!library_) library_ = std::make_unique<Ucx>(sources_);
  return *library_;
}

UcxMessages& UcxOfProcess::messages() {
  if (!messages_) messages_ = std::make_shared<UcxMessages>(library());
  return *messages_;
}

std::string UcxOfProcess::why_not(const Program& program, const Actor& actor) {
  if (const auto& why = library().facts().why_not; !why.empty()) return why;
  for (const auto& step : actor.loop) {
    if (!is_by_ucx(step)) continue;
    const auto& span = std::get<RankMessage>(step).span;
    if (!span || program.regions[span->region].at.kind != PlaceKind::gpu) continue;
    if (auto why = messages().why_not_gpu(); !why.empty())
      return "UCX " + library().facts().version + " (" + library().facts().found + ") takes no buffers of GPUs: " + why;
  }
  return "";
}

void UcxOfProcess::prepare(CudaSession& session) {
  const auto others = peers_of(session);
  if (others.empty()) return;
  auto& own = messages();
  own.set_process(session.process);
  const auto& facts = library().facts();
  session.notes.emplace_back("ucx", facts.version + ", " + facts.path + ": " + facts.found);
  std::set<u32> missing;
  for (const u32 peer : others)
    if (!own.reaches(peer)) missing.insert(peer);
  const auto address = own.address();
  for (const u32 peer : missing) give_text(*session.peers, peer, address);
  for (const u32 peer : missing)
    own.connect(peer, take_text(*session.peers, peer, "its address of UCX", session.patience()));
  session.ucx = messages_;
}

}  // namespace linkscope
