#include "transfer/transfers.hpp"

#include <pthread.h>

#include <algorithm>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "host/own_memory.hpp"
#include "transfer/capture.hpp"

namespace linkscope {
namespace {

std::atomic<bool> is_child_of_fork{false};

void watch_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { is_child_of_fork = true; });
  (void)once;
}

}  // namespace

Transfers::Transfers(const Options& options)
    : options_{options}, gpus_{driver_}, arena_{driver_, options.arena_bytes, options.slot_bytes} {
  watch_forks();
  find_smallest();
}

Transfers::~Transfers() {
  const CUcontext context = gpus_.any_context();
  if (!context) return;
  try {
    const CurrentContext current{driver_, context};
    arena_.clear();
  } catch (const Error&) {  // the driver is shutting down and has freed the memory
  }
}

bool Transfers::is_in_child_of_fork() { return is_child_of_fork; }

void Transfers::find_smallest() {
  small_copy_ = driver_.usable() ? driver_.cuMemcpyAsync : nullptr;
  small_ = ~u64{0};
  for (const auto& method : copy_methods())
    if (method.id != MethodId::plain) small_ = std::min(small_, options_.of(method.id).from_bytes);
  if (options_.plain) small_ = ~u64{0};
}

void Transfers::set(MethodId id, const Knobs& knobs) {
  if (knobs.threads == 0 || knobs.depth == 0 || knobs.chunk == 0)
    throw Error{ErrorKind::usage, "a method needs at least one thread, a depth of one and chunks of one byte"};
  options_.of(id) = knobs;
  find_smallest();
}

Copy Transfers::look_up(const CopyRequest& request) {
  if (request.bytes && (!request.dst || !request.src))
    throw Error{ErrorKind::usage, std::string{"the "} + (request.dst ? "source" : "destination") + " has address 0"};
  if (overlap(request)) throw Error{ErrorKind::usage, "source and destination overlap; copy through a third buffer"};
  if (!driver_.usable()) return {request, {}, {}, {}, false};
  // The parent's threads and GPUs are not here, but a copy between two ranges of host memory needs neither.
  if (is_child_of_fork && !request.stream && can_read(request.src, request.bytes) &&
      can_write(request.dst, request.bytes))
    return {request, {}, {}, {}, false};
  if (is_child_of_fork)
    throw Error{ErrorKind::lost,
                "CUDA does not work in a child of fork() after its parent has used it; start worker "
                "processes with the method 'spawn' or 'forkserver'"};
  Copy copy{request, locate(driver_, request.dst), locate(driver_, request.src), {}, false};
  // Memory whose two ends differ lies in several allocations, and only the driver knows what is between them.
  for (auto [location, start] : {std::pair<Location*, const void*>{&copy.dst, request.dst}, {&copy.src, request.src}})
    if (request.bytes > 1 && locate(driver_, static_cast<const std::byte*>(start) + request.bytes - 1) != *location)
      *location = {Memory::managed, -1};
  copy.lane = gpus_.lane_of(request.stream, copy.dst.memory == Memory::device ? copy.dst.device : copy.src.device);
  if (copy.lane) {
    const CurrentContext current{driver_, copy.lane->context};
    copy.captured = is_captured(driver_, request.stream);
  }
  return copy;
}

void Transfers::copy_large(const CopyRequest& request, Progress& progress) {
  if (request.bytes == 0) return;
  const Copy copy = look_up(request);
  run(method_for(resources(), copy), copy, progress);
}

void Transfers::run(const CopyMethod& method, const Copy& copy, Progress& progress) {
  try {
    method.run(resources(), copy, progress);
    ++counts_[static_cast<std::size_t>(method.id)];
    return;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& error) {
    if (method.id == MethodId::plain || error.kind() == ErrorKind::lost || error.kind() == ErrorKind::usage ||
        !driver_.usable())
      throw;
    const std::lock_guard lock{mutex_};
    fallback_ = std::string{method.name} + ": " + error.what();
  }
  // The driver's copy is queued behind the chunks, so it has the last word on every byte.
  copy_plainly(resources(), copy);
  progress.done = copy.request.bytes;
  ++counts_[static_cast<std::size_t>(MethodId::plain)];
}

std::string Transfers::latest_fallback() const {
  const std::lock_guard lock{mutex_};
  return fallback_;
}

const char* Transfers::method_of(const CopyRequest& request) { return method_for(resources(), look_up(request)).name; }

Transfers::Prepared Transfers::prepare(const CopyRequest& request) {
  Prepared prepared{*this, look_up(request)};
  const auto& [copied, dst, src, lane, captured] = prepared.copy_;
  if (method_for(resources(), prepared.copy_).id != MethodId::plain || !driver_.usable() || !lane) return prepared;
  if (src.on_host() && dst.memory == Memory::device)
    prepared.direct_ = [](const Prepared& p) {
      const auto& r = p.copy_.request;
      return p.owner_.driver_.cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(r.dst), r.src, r.bytes, r.stream);
    };
  else if (src.memory == Memory::device && dst.on_host())
    prepared.direct_ = [](const Prepared& p) {
      const auto& r = p.copy_.request;
      return p.owner_.driver_.cuMemcpyDtoHAsync(r.dst, reinterpret_cast<CUdeviceptr>(r.src), r.bytes, r.stream);
    };
  else
    prepared.direct_ = [](const Prepared& p) {
      const auto& r = p.copy_.request;
      return p.owner_.driver_.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(r.dst), reinterpret_cast<CUdeviceptr>(r.src),
                                            r.bytes, r.stream);
    };
  return prepared;
}

void Transfers::Prepared::run_any() {
  Progress progress;
  if (copy_.request.bytes == 0) return;
  Copy copy = copy_;
  if (copy.lane) {  // a capture may have begun
    const CurrentContext current{owner_.driver_, copy.lane->context};
    copy.captured = is_captured(owner_.driver_, copy.request.stream);
  }
  owner_.run(method_for(owner_.resources(), copy), copy, progress);
}

}  // namespace linkscope
