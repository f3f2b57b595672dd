#include "nixl/messages.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr int write = 1;  // NIXL_CAPI_XFER_OP_WRITE
constexpr std::chrono::seconds patience{20};
constexpr unsigned polls_to_look = 1 << 8;  // between two looks at the clock, and at others who wait for this CPU

NixlMemory memory_of(const RankPost& post) { return post.on_gpu ? NixlMemory::gpu : NixlMemory::host; }

/// Polls until `done` returns true.
template <class Done>
void poll(const char* what, Done done) {
  std::chrono::steady_clock::time_point begun{};
  for (unsigned polls = 1; !done(); ++polls) {
    if (polls % polls_to_look != 0) continue;
    const auto now = std::chrono::steady_clock::now();
    if (polls == polls_to_look) begun = now;
    if (now - begun > patience) throw Error{ErrorKind::timeout, std::string{what} + " does not come since 20 s"};
    sched_yield();  // the other process may wait for this CPU
  }
}

/// A list of one range of memory, as transfers take it.
class List {
 public:
  List(const NixlCalls& calls, NixlMemory memory, u64 address, u64 bytes, u64 gpu) : calls_{calls} {
    check_nixl(calls.make_list(static_cast<int>(memory), &list_, false), "create_xfer_dlist");
    check_nixl(calls.add_to_list(list_, address, bytes, gpu), "xfer_dlist_add_desc");
  }
  ~List() { calls_.end_list(list_); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  [[nodiscard]] void* get() const { return list_; }

 private:
  const NixlCalls& calls_;
  void* list_ = nullptr;
};

}  // namespace

NixlMessages::NixlMessages(std::shared_ptr<NixlAgent> agent) : agent_{std::move(agent)}, calls_{agent_->calls()} {
  agent_->forget_notifications();
}

NixlMessages::~NixlMessages() {
  for (auto& [peer, route] : routes_) {
    end(route.alone);
    for (void* request : route.window) end(request);
  }
  for (const auto& [peer, name] : peers_) calls_.forget_peer(agent_->handle(), name.c_str());
  for (void* list : registered_) {
    calls_.deregister_memory(agent_->handle(), list, nullptr);
    calls_.end_registration(list);
  }
}

void NixlMessages::add_memory(const RankPost& post, u32 gpu) {
  void* list = nullptr;
  check_nixl(calls_.make_registration(static_cast<int>(memory_of(post)), &list, false), "create_reg_dlist");
  calls_.add_registration(list, reinterpret_cast<std::size_t>(post.start), post.bytes, gpu, nullptr, 0);
  if (const int status = calls_.register_memory(agent_->handle(), list, nullptr); status != 0) {
    calls_.end_registration(list);
    if (post.on_gpu)
      throw Error{ErrorKind::unsupported, "NIXL takes no buffers of GPUs: it does not register memory of gpu:" +
                                              std::to_string(gpu) + " (status " + std::to_string(status) +
                                              "), as if its UCX has no CUDA (NIXL_LOG_LEVEL=debug prints more)"};
    check_nixl(status, "register_mem");
  }
  registered_.push_back(list);
}

void NixlMessages::connect(u32 peer, const std::string& description) { peers_[peer] = agent_->load(description); }

void NixlMessages::add_target(const RankPost& post, u32 gpu, const NixlTarget& target) {
  auto& route = routes_[post.peer];
  route.from = post;
  route.to = target;
  route.gpu = gpu;
  route.alone = make_request(route, true);
}

void* NixlMessages::make_request(const Route& route, bool notifies) const {
  static constexpr char come = 1;
  const auto& [post, to] = std::tie(route.from, route.to);
  const List local{calls_, memory_of(post), reinterpret_cast<u64>(post.start), post.bytes, route.gpu},
      remote{calls_, to.memory, to.start, to.bytes, to.gpu};
  void *options = nullptr, *request = nullptr;
  if (notifies) {
    check_nixl(calls_.make_options(&options), "create_opt_args");
    calls_.set_notification(options, &come, sizeof come);
    calls_.with_notification(options, true);
  }
  const int status = calls_.make_request(agent_->handle(), write, local.get(), remote.get(),
                                         peers_.at(post.peer).c_str(), &request, options);
  if (options) calls_.end_options(options);
  check_nixl(status, "create_xfer_req");
  return request;
}

void NixlMessages::end(void* request) const {
  if (!request) return;
  calls_.release_request(agent_->handle(), request);
  calls_.end_request(request);
}

void NixlMessages::finish(void* request) const {
  poll("the end of a write of NIXL",
       [&] { return !check_nixl(calls_.state(agent_->handle(), request), "get_xfer_status"); });
}

void NixlMessages::wait(u32 peer) {
  const auto& name = peers_.at(peer);
  poll("a notification of NIXL", [&] { return agent_->take_notification(name); });
}

void NixlMessages::send(u32 peer) {
  const auto route = routes_.find(peer);
  if (route == routes_.end()) return agent_->notify(peers_.at(peer));  // a message without bytes
  if (check_nixl(calls_.post(agent_->handle(), route->second.alone, nullptr), "post_xfer_req"))
    finish(route->second.alone);
}

/// A request cannot be posted again before it has ended, so each message of a window has its own.
void NixlMessages::fill_windows(std::span<const RankPost> posts, u32 window) {
  for (const auto& post : posts) {
    const auto route = routes_.find(post.peer);
    if (!post.sends || route == routes_.end()) continue;
    while (route->second.window.size() < window) route->second.window.push_back(make_request(route->second, false));
  }
}

/// The first `count` writes of all windows.
void NixlMessages::write_window(std::span<const RankPost> posts, u64 count) {
  std::vector<void*> under_way;
  for (const auto& post : posts) {
    const auto route = routes_.find(post.peer);
    if (!post.sends || route == routes_.end()) continue;  // a message without bytes is a notification alone
    for (u64 i = 0; i < count; ++i) {
      void* request = route->second.window[i];
      if (check_nixl(calls_.post(agent_->handle(), request, nullptr), "post_xfer_req")) under_way.push_back(request);
    }
  }
  for (void* request : under_way) finish(request);
  for (const auto& post : posts)
    if (post.sends) agent_->notify(peers_.at(post.peer));
}

void NixlMessages::exchange(std::span<const RankPost> posts, u32 window, u64 count) {
  if (window == 0) {
    for (u64 i = 0; i < count; ++i)
      for (const auto& post : posts) post.sends ? send(post.peer) : wait(post.peer);
    return;
  }
  fill_windows(posts, window);
  for (u64 done = 0; done < count; done += window) {
    write_window(posts, std::min<u64>(window, count - done));
    for (const auto& post : posts)
      if (!post.sends) wait(post.peer);
    for (const auto& post : posts) {
      if (is_bidirectional(posts, post)) continue;
      post.sends ? wait(post.peer) : agent_->notify(peers_.at(post.peer));
    }
  }
}

}  // namespace linkscope
