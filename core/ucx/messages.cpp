#include "ucx/messages.hpp"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr u64 with_features = 1, tag_matching = 1;  // UCP_PARAM_FIELD_FEATURES, UCP_FEATURE_TAG
constexpr u64 with_thread_mode = 1;                 // UCP_WORKER_PARAM_FIELD_THREAD_MODE
constexpr int serialized = 1;                       // UCS_THREAD_MODE_SERIALIZED: of other threads than its maker
constexpr u64 with_address = 1;                     // UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
constexpr u64 with_memory_types = 1u << 2, of_cuda = 1u << 1;  // UCP_ATTR_FIELD_MEMORY_TYPES, UCS_MEMORY_TYPE_CUDA
constexpr u32 with_memory_type = 1u << 6;                      // UCP_OP_ATTR_FIELD_MEMORY_TYPE
constexpr int cuda_memory = 1;                                 // UCS_MEMORY_TYPE_CUDA
constexpr int in_progress = 1;                                 // UCS_INPROGRESS
constexpr std::intptr_t last_error = -100;                     // UCS_ERR_LAST
constexpr std::chrono::seconds patience{20};
constexpr unsigned polls_to_look = 1 << 8;  // between two looks at the clock, and at others who wait for this CPU

u64 tag_of(u32 sender, u32 kind) { return u64{sender} << 32 | kind; }

}  // namespace

UcxMessages::UcxMessages(const Ucx& ucx) : ucx_{ucx} {
  static std::atomic<u64> made{0};
  number_ = ++made;
  const auto& calls = ucx.calls();
  void* config = nullptr;
  ucx.check(calls.read_config(nullptr, nullptr, &config), "ucp_config_read");
  const UcxParams params{with_features, tag_matching, {}};
  const int status = calls.init(ucx_major, least_ucx_minor, &params, config, &context_);
  calls.release_config(config);
  ucx.check(status, "ucp_init");
  const UcxWorkerParams of_worker{with_thread_mode, serialized, {}};
  if (const int made = calls.make_worker(context_, &of_worker, &worker_); made != 0) {
    worker_ = nullptr;
    end();
    ucx.check(made, "ucp_worker_create");
  }
}

UcxMessages::~UcxMessages() { end(); }

void UcxMessages::end() {
  if (worker_) ucx_.calls().end_worker(worker_);  // with its endpoints: the other processes may have ended
  ucx_.calls().clean_up(context_);
}

std::string UcxMessages::address() const {
  void* found = nullptr;
  std::size_t bytes = 0;
  ucx_.check(ucx_.calls().address(worker_, &found, &bytes), "ucp_worker_get_address");
  std::string own(sizeof number_, '\0');
  std::memcpy(own.data(), &number_, sizeof number_);
  own.append(static_cast<const char*>(found), bytes);
  ucx_.calls().release_address(worker_, found);
  return own;
}

void UcxMessages::connect(u32 peer, const std::string& address) {
  u64 number = 0;
  std::memcpy(&number, address.data(), sizeof number);
  if (std::exchange(numbers_[peer], number) == number) return;
  const UcxEndpointParams params{with_address, address.data() + sizeof number, {}};
  void* endpoint = nullptr;
  ucx_.check(ucx_.calls().make_endpoint(worker_, &params, &endpoint), "ucp_ep_create");
  endpoints_[peer] = endpoint;
}

std::string UcxMessages::why_not_gpu() const {
  UcxContextFacts facts{};
  facts.mask = with_memory_types;
  ucx_.check(ucx_.calls().query(context_, &facts), "ucp_context_query");
  return facts.memory_types & of_cuda ? "" : ucx_.why_no_cuda();
}

void* UcxMessages::start(bool sends, u32 peer, Kind kind, std::byte* at, u64 bytes, bool on_gpu) {
  // UCX takes memory that was allocated before it was loaded for memory of the host, unless the request names its type.
  static constexpr UcxRequestParams unknown{}, of_gpu{with_memory_type, {}, cuda_memory, {}};
  const auto* params = on_gpu ? &of_gpu : &unknown;
  const auto& calls = ucx_.calls();
  const auto number = static_cast<u32>(kind);
  void* request = sends ? calls.send(endpoints_.at(peer), at, bytes, tag_of(process_, number), params)
                        : calls.receive(worker_, at, bytes, tag_of(peer, number), ~u64{0}, params);
  const auto status = reinterpret_cast<std::intptr_t>(request);
  if (status < 0 && status >= last_error)
    ucx_.check(static_cast<int>(status), sends ? "ucp_tag_send_nbx" : "ucp_tag_recv_nbx");
  return request;
}

void* UcxMessages::start(const RankPost& post, u64 iteration) {
  return start(post.sends, post.peer, Kind::message, post.at(iteration), post.bytes, post.on_gpu);
}

/// Waits for a request; null: it was done at once.
void UcxMessages::finish(void* request) {
  if (!request) return;
  const auto& calls = ucx_.calls();
  auto moved = std::chrono::steady_clock::time_point{};
  bool moves = true;
  for (unsigned polls = 1; calls.state(request) == in_progress; ++polls) {
    moves |= calls.progress(worker_) != 0;
    if (polls % polls_to_look != 0) continue;
    const auto now = std::chrono::steady_clock::now();
    if (std::exchange(moves, false)) moved = now;
    // The request stays: UCX may still write to it.
    if (now - moved > patience) throw Error{ErrorKind::timeout, "no message of UCX moves since 20 s"};
    sched_yield();  // the other process may wait for this CPU
  }
  const int status = calls.state(request);
  calls.release(request);
  ucx_.check(status, "a message of UCX");
}

/// The receiver of a window tells the sender that all of it has come, so that messages do not pile up.
void UcxMessages::answer(const RankPost& post) {
  finish(start(!post.sends, post.peer, Kind::answer, nullptr, 0, false));
}

void UcxMessages::send_ahead(const RankPost& post, u64 iteration, u32 ahead) {
  under_way_.push_back(start(post, iteration));
  finish_sends(ahead);
}

void UcxMessages::finish_sends(u32 most) {
  for (; under_way_.size() > most; under_way_.pop_front()) finish(under_way_.front());
}

void UcxMessages::exchange(std::span<const RankPost> posts, u32 window, u64 first, u64 count) {
  if (window == 0) {
    for (u64 i = first; i < first + count; ++i)
      for (const auto& post : posts) finish(start(post, i));
    return;
  }
  std::vector<void*> under_way;
  under_way.reserve(posts.size() * window);
  for (u64 i = 0; i < count; ++i) {
    for (const auto& post : posts) under_way.push_back(start(post, first + i));
    if ((i + 1) % window != 0 && i + 1 != count) continue;
    for (void* request : under_way) finish(request);
    under_way.clear();
    for (const bool sends : {false, true})  // in a ring of ranks each answers before it waits for its own answer
      for (const auto& post : posts)
        if (post.sends == sends && !is_bidirectional(posts, post)) answer(post);
  }
}

}  // namespace linkscope
