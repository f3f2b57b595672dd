#include "platform/cuda/nixl.hpp"

#include <unistd.h>

#include <array>
#include <set>

#include "host/peer_texts.hpp"
#include "platform/cuda/ranks.hpp"

namespace linkscope {
namespace {

/// A name that no other process has, on any host.
std::string own_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return std::string{"linkscope-"} + host.data() + "-" + std::to_string(getpid());
}

u32 gpu_of(const ActorState& state) {
  return state.device_of_posts ? static_cast<u32>(state.device_of_posts->facts().handle) : 0;
}

NixlTarget target_of(const RankPost& post, u32 gpu) {
  return {reinterpret_cast<u64>(post.start), post.bytes, gpu, post.on_gpu ? NixlMemory::gpu : NixlMemory::host};
}

}  // namespace

const Nixl& NixlOfProcess::library() {
  if (!library_) library_ = std::make_unique<Nixl>(sources_);
  return *library_;
}

void NixlOfProcess::prepare(CudaSession& session) {
  std::set<u32> others;
  std::map<u32, NixlTarget> here, there;  // where messages of each process go, and those of this process
  for (const auto& state : session.actors)
    if (carrier_of(*state.actor) == Engine::nixl)
      for (const auto& post : state.posts) {
        others.insert(post.peer);
        if (!post.sends && post.start) here[post.peer] = target_of(post, gpu_of(state));
      }
  if (others.empty()) return;
  if (!agent_) agent_ = std::make_shared<NixlAgent>(library(), own_name());
  session.notes.emplace_back("nixl", library().facts().path + ": " + library().facts().found);
  auto messages = std::make_shared<NixlMessages>(agent_);
  for (const auto& state : session.actors)
    if (carrier_of(*state.actor) == Engine::nixl)
      for (const auto& post : state.posts)
        if (post.start) messages->add_memory(post, gpu_of(state));
  const auto description = agent_->description();
  for (const u32 peer : others) {
    session.peers->give(peer, here[peer]);
    give_text(*session.peers, peer, description);
  }
  constexpr const char* what = "its memory for messages of NIXL";
  for (const u32 peer : others) {
    there[peer] = session.peers->take<NixlTarget>(peer, what, session.patience());
    messages->connect(peer, take_text(*session.peers, peer, what, session.patience()));
  }
  for (const auto& state : session.actors)
    if (carrier_of(*state.actor) == Engine::nixl)
      for (const auto& post : state.posts)
        if (post.sends && post.start) messages->add_target(post, gpu_of(state), there.at(post.peer));
  session.nixl = std::move(messages);
}

}  // namespace linkscope
