#include "transfer/paths.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "transfer/capture.hpp"

namespace linkscope {
namespace {

using namespace std::chrono_literals;

// A chunk takes tens of microseconds. Earlier work of the stream may take seconds, or wait for the caller.
constexpr std::chrono::nanoseconds patience = 2ms;

/// A GPU that is full does not help.
Hops::Lease relay_with_memory(const Resources& with, u32 helper, const CopyLane& lane, Towards towards) {
  try {
    return with.hops.relay(helper, lane, towards);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    return {};
  }
}

}  // namespace

std::vector<u32> helpers_of(const Resources& with, const CopyLane& lane, u32 links) {
  std::vector<u32> found;
  for (const u32 helper : with.options.helpers)
    if (found.size() + 1 < links && with.hops.can_relay(helper, lane.gpu)) found.push_back(helper);
  return found;
}

Paths::Paths(const Resources& with, const CopyLane& lane, Towards towards, const std::vector<u32>& helpers)
    : driver_{with.driver}, lane_{lane}, towards_{towards} {
  const DuringCaptures allowed{driver_};
  const CurrentContext current{driver_, lane.context};
  paths_.push_back(std::make_unique<Path>(lane, Hops::Lease{}));
  for (u32 i = 0; i < Hops::slots; ++i)
    paths_[0]->ends.push_back(std::make_unique<Event>(driver_, CU_EVENT_DISABLE_TIMING));
  const Event before{driver_, CU_EVENT_DISABLE_TIMING};
  LINKSCOPE_CU(driver_, cuEventRecord, before.get(), lane.stream);
  for (const u32 helper : helpers) {
    auto hop = relay_with_memory(with, helper, lane, towards);
    if (!hop) continue;
    hop->wait_for(before.get());
    const CopyLane by = towards == Towards::gpu ? hop->first() : hop->second();
    paths_.push_back(std::make_unique<Path>(by, std::move(hop)));
  }
}

void Paths::run(const std::function<void()>& work) {
  const DuringCaptures allowed{driver_};
  try {
    work();
    for (const auto& path : paths_)
      if (path->hop) path->hop->join(lane_);
  } catch (...) {
    bool finished = true;
    for (const auto& path : paths_)
      if (path->hop) finished = path->hop.finish() && finished;
    if (!finished)
      throw Error{ErrorKind::lost,
                  "a copy failed, and the driver cannot wait for its parts on other GPUs; end the process"};
    throw;
  }
}

bool Paths::has_room(const Path& path) const {
  if (path.hop) return path.hop->has_room();
  if (path.used < path.ends.size()) return true;
  const CUresult status = driver_.cuEventQuery(path.ends[path.next]->get());
  if (status == CUDA_ERROR_NOT_READY) return false;
  driver_.check(status, "cuEventQuery");
  return true;
}

/// The path for the next chunk, held.
Paths::Path& Paths::take(std::unique_lock<std::mutex>& held) {
  for (const auto begin = std::chrono::steady_clock::now();;) {
    for (const auto& path : paths_) {
      std::unique_lock lock{path->mutex, std::try_to_lock};
      if (!lock || !has_room(*path)) continue;
      held = std::move(lock);
      return *path;
    }
    if (is_impatient_ || std::chrono::steady_clock::now() - begin > patience) break;
    std::this_thread::yield();
  }
  is_impatient_ = true;
  const auto fewest = std::min_element(paths_.begin(), paths_.end(),
                                       [](const auto& a, const auto& b) { return a->queued < b->queued; });
  held = std::unique_lock{(*fewest)->mutex};
  return **fewest;
}

void Paths::queue(CUdeviceptr device, std::byte* pinned, u64 bytes, Slot* slot) {
  std::unique_lock<std::mutex> held;
  Path& path = take(held);
  path.queued += bytes;
  const CurrentContext current{driver_, path.lane.context};
  if (slot) slot->expose(path.lane);
  queue_on(path, device, pinned, bytes);
  if (slot) slot->guard(driver_);
}

void Paths::queue_on(Path& path, CUdeviceptr device, std::byte* pinned, u64 bytes) const {
  const auto host = reinterpret_cast<CUdeviceptr>(pinned);
  const auto [dst, src] = towards_ == Towards::gpu ? std::pair{device, host} : std::pair{host, device};
  if (path.hop) return path.hop->queue(dst, src, bytes);
  LINKSCOPE_CU(driver_, cuMemcpyAsync, dst, src, bytes, path.lane.stream);
  LINKSCOPE_CU(driver_, cuEventRecord, path.ends[path.next]->get(), path.lane.stream);
  path.next = (path.next + 1) % path.ends.size();
  ++path.used;
}

}  // namespace linkscope
