#include "context.hpp"

#include <memory>
#include <string>
#include <vector>

#include "calls.hpp"
#include "faults.hpp"
#include "leaks.hpp"
#include "settings.hpp"
#include "sharing.hpp"
#include "stream.hpp"

namespace fake {
namespace {

thread_local CUcontext current_context = nullptr;

/// One primary context per device. A released one stays in place, so that its handle is still recognized.
std::vector<CUctx_st>& primaries() {
  static auto* contexts = [] {
    auto* made = new std::vector<CUctx_st>(settings().visible.size());
    for (std::size_t i = 0; i < made->size(); ++i) (*made)[i].device = static_cast<CUdevice>(i);
    return made;
  }();
  return *contexts;
}

/// Contexts that an application made. A destroyed one stays in place, likewise.
std::vector<std::unique_ptr<CUctx_st>>& made_contexts() {
  static auto* contexts = new std::vector<std::unique_ptr<CUctx_st>>;
  return *contexts;
}

bool unavailable(CUdevice device) {
  if (settings().mode_gpu != never && settings().mode_gpu != static_cast<unsigned long long>(device)) return false;
  return settings().mode == CU_COMPUTEMODE_PROHIBITED || settings().held_by_another;
}

}  // namespace

std::recursive_mutex& global_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

CUcontext current() { return current_context; }

bool is_context(CUcontext context) {
  const std::lock_guard lock{global_mutex()};
  for (auto& primary : primaries())
    if (context == &primary) return primary.retained > 0;
  for (auto& made : made_contexts())
    if (context == made.get()) return made->retained > 0;
  return false;
}

bool peers(CUdevice a, CUdevice b) {
  const std::lock_guard lock{global_mutex()};
  auto &first = primaries()[static_cast<std::size_t>(a)], &second = primaries()[static_cast<std::size_t>(b)];
  return first.peers.contains(&second) || second.peers.contains(&first);
}

void count_contexts(LeakCounts& counts) {
  for (const auto& primary : primaries()) counts["contexts"] += static_cast<unsigned>(primary.retained);
  for (const auto& made : made_contexts()) counts["contexts"] += static_cast<unsigned>(made->retained);
}

namespace {

unsigned long long extra_us_of(std::size_t number) {
  const auto& slow = settings().slow_contexts;
  return !slow.empty() && slow[number % slow.size()] == 'x' ? settings().extra_us : 0;
}

}  // namespace

namespace {

/// Streams, events and openings of other processes' memory that a context still has.
std::size_t objects_of(CUcontext context) {
  return streams_of(context) + events_of(context) + openings_by(context->device);
}

}  // namespace

CUresult device_primary_ctx_retain(CUcontext* context, CUdevice device) {
  const std::lock_guard lock{global_mutex()};
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (unavailable(device)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  auto& primary = primaries()[static_cast<std::size_t>(device)];
  if (++primary.retained == 1) primary.extra_us = extra_us_of(primary.made++);
  *context = &primary;
  return CUDA_SUCCESS;
}

CUresult device_primary_ctx_release(CUdevice device) {
  const std::lock_guard lock{global_mutex()};
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  auto& primary = primaries()[static_cast<std::size_t>(device)];
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retained > 0) return CUDA_SUCCESS;
  if (const auto left = objects_of(&primary); left > 0)
    note_misuse("a primary context that ends before " + std::to_string(left) + " of its streams, events and openings");
  primary.peers.clear();
  for (auto& other : primaries()) other.peers.erase(&primary);
  return CUDA_SUCCESS;
}

CUresult ctx_create(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
  const std::lock_guard lock{global_mutex()};
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  auto& made = made_contexts().emplace_back(std::make_unique<CUctx_st>());
  made->device = device;
  made->retained = 1;
  *context = current_context = made.get();
  return CUDA_SUCCESS;
}

CUresult ctx_destroy(CUcontext context) {
  const std::lock_guard lock{global_mutex()};
  if (!is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  for (auto& made : made_contexts())
    if (context == made.get()) made->retained = 0;
  if (current_context == context) current_context = nullptr;
  return CUDA_SUCCESS;
}

CUresult ctx_set_current(CUcontext context) {
  if (context && !is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  current_context = context;
  return CUDA_SUCCESS;
}

CUresult ctx_get_current(CUcontext* context) {
  *context = current_context;
  return CUDA_SUCCESS;
}

CUresult ctx_get_device_of(CUdevice* device, CUcontext context) {
  if (!context) context = current_context;
  if (!is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult ctx_get_device(CUdevice* device) { return ctx_get_device_of(device, nullptr); }

CUresult ctx_enable_peer_access(CUcontext peer, unsigned flags) {
  const std::lock_guard lock{global_mutex()};
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_context(current_context) || !is_context(peer) || peer == current_context) return CUDA_ERROR_INVALID_CONTEXT;
  if (settings().no_peer) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return current_context->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult ctx_disable_peer_access(CUcontext peer) {
  const std::lock_guard lock{global_mutex()};
  if (!is_context(current_context) || !is_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  return current_context->peers.erase(peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult ctx_synchronize_of(CUcontext context) {
  if (!context) context = current_context;
  if (!is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  drain(context);
  return lost();
}

CUresult ctx_synchronize() { return ctx_synchronize_of(nullptr); }

}  // namespace fake
