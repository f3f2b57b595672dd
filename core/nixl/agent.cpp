#include "nixl/agent.hpp"

#include <cstdlib>

namespace linkscope {
namespace {

constexpr const char* plugin = "UCX";

}  // namespace

NixlAgent::NixlAgent(const Nixl& nixl, const std::string& name) : calls_{nixl.calls()} {
  const NixlAgentConfig config{.progress_thread = false,  // as in loops of MPI and of UCX, the caller polls
                               .listen_thread = false,
                               .listen_port = 0,
                               .synchronization = 0,
                               .workers = 1,
                               .progress_delay_us = 0,
                               .listen_delay_us = 0,
                               .telemetry = false};
  check_nixl(calls_.make_agent(name.c_str(), &config, &agent_), "create_configured_agent");
  void *types = nullptr, *params = nullptr;
  try {
    check_nixl(calls_.params(agent_, plugin, &types, &params), "get_plugin_params of UCX");
    const int made = calls_.make_backend(agent_, plugin, params, &backend_);
    calls_.release_memory_types(types);
    calls_.release_params(params);
    check_nixl(made, "create_backend of UCX");
    check_nixl(calls_.make_notifications(&map_), "create_notif_map");
  } catch (...) {
    end();
    throw;
  }
}

NixlAgent::~NixlAgent() { end(); }

void NixlAgent::end() {
  if (map_) calls_.end_notifications(map_);
  if (backend_) calls_.release_backend(backend_);
  calls_.end_agent(agent_);
}

std::string NixlAgent::description() const {
  void* bytes = nullptr;
  std::size_t count = 0;
  check_nixl(calls_.description(agent_, &bytes, &count), "get_local_md");
  std::string own{static_cast<const char*>(bytes), count};
  std::free(bytes);
  return own;
}

std::string NixlAgent::load(const std::string& description) const {
  char* name = nullptr;
  check_nixl(calls_.load_description(agent_, description.data(), description.size(), &name), "load_remote_md");
  std::string peer{name};
  std::free(name);
  return peer;
}

/// Counts the notifications that have come by their senders.
void NixlAgent::take_all() {
  check_nixl(calls_.take_notifications(agent_, map_, nullptr), "get_notifs");
  std::size_t senders = 0;
  calls_.count_senders(map_, &senders);
  if (senders == 0) return;
  for (std::size_t i = 0; i < senders; ++i) {
    const char* peer = nullptr;
    std::size_t count = 0;
    check_nixl(calls_.sender(map_, i, &peer), "notif_map_get_agent_at");
    check_nixl(calls_.count_notifications(map_, peer, &count), "notif_map_get_notifs_size");
    came_[peer] += count;
  }
  calls_.clear_notifications(map_);
}

void NixlAgent::forget_notifications() {
  take_all();
  came_.clear();
}

bool NixlAgent::take_notification(const std::string& peer) {
  u64& count = came_[peer];
  if (count == 0) take_all();
  if (count == 0) return false;
  --count;
  return true;
}

void NixlAgent::notify(const std::string& peer) const {
  static constexpr char come = 1;  // NIXL takes no empty notification in some versions
  check_nixl(calls_.notify(agent_, peer.c_str(), &come, sizeof come, nullptr), "gen_notif");
}

}  // namespace linkscope
