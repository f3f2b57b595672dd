#include "platform/cuda/ucx.hpp"

#include <optional>
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

/// The GPU whose memory a process, or any process, sends or receives by UCX; none: messages are in memory of the host.
std::optional<u32> gpu_of(const Program& program, std::optional<u32> process) {
  for (const auto& actor : program.actors) {
    if (process && actor.process != *process) continue;
    for (const auto& step : actor.loop) {
      if (!is_by_ucx(step)) continue;
      const auto& span = std::get<RankMessage>(step).span;
      if (!span) continue;
      if (const Place& at = program.regions[span->region].at; at.kind == PlaceKind::gpu) return at.index;
    }
  }
  return {};
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

/// UCX looks at the calling thread's context when it is made: it learns the GPU, and sets a flag of the context. So a
/// UCX that was made without the GPU is made anew.
void UcxOfProcess::take_gpu(const Device& device) {
  device.use();
  if (!made_with_gpu_) messages_.reset();
  made_with_gpu_ = true;
  (void)messages();
}

void UcxOfProcess::forget_others() {
  messages_.reset();
  made_with_gpu_ = shares_gpus_ = false;
}

std::string UcxOfProcess::why_not(const Program& program, const Actor& actor, u32 process) {
  if (const auto& why = library().facts().why_not; !why.empty()) return why;
  if (const auto gpu = gpu_of(program, process)) take_gpu(open_(*gpu));
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
  shares_gpus_ |= gpu_of(session.whole, {}).has_value();
  const auto others = peers_of(session);
  if (others.empty()) return;
  auto& own = messages();
  own.set_process(session.process);
  const auto& facts = library().facts();
  session.notes.emplace_back("ucx", facts.version + ", " + facts.path + ": " + facts.found);
  const auto address = own.address();
  for (const u32 peer : others) give_text(*session.peers, peer, address);
  for (const u32 peer : others)  // which may have made its UCX anew
    own.connect(peer, take_text(*session.peers, peer, "its address of UCX", session.patience()));
  session.ucx = messages_;
}

}  // namespace linkscope
