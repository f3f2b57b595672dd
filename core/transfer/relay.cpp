#include "transfer/relay.hpp"

#include <algorithm>
#include <array>
#include <exception>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "host/own_memory.hpp"
#include "host/topology.hpp"
#include "transfer/both_gpus.hpp"
#include "transfer/capture.hpp"
#include "transfer/staged.hpp"

namespace linkscope {
namespace {

using namespace literals;

constexpr u64 smallest_relayed = 256_KiB;  // a shorter one takes less time than the calls that relay it
constexpr u64 last_chunk = 1_MiB;          // of a copy of pinned memory

/// The helpers of a copy between host memory and the GPU of its stream.
std::vector<u32> helpers_of_copy(const Resources& with, const PlannedCopy& copy, const Knobs& knobs, Towards towards) {
  const auto& device = towards == Towards::gpu ? copy.dst : copy.src;
  if (with.gpus.facts()[copy.lane->gpu].handle != device.device) return {};
  return helpers_of(with, *copy.lane, knobs.links);
}

bool fits(const Resources& with, const PlannedCopy& copy, MethodId id, Towards towards) {
  const auto& [host, device] = towards == Towards::gpu ? std::pair{copy.src, copy.dst} : std::pair{copy.dst, copy.src};
  return copy.lane && !copy.captured && can_ring(with) && host.memory == MemoryType::pinned &&
         device.memory == MemoryType::device && with.options.uses(id, copy.request.bytes) &&
         !helpers_of_copy(with, copy, with.options.of(id, copy.request.bytes), towards).empty();
}

/// What the threads of one copy share.
struct Pulling {
  std::vector<Chunk> chunks;
  std::atomic<u64> next{0};
  std::mutex mutex{};
  std::exception_ptr failure{};
};

/// One thread's part: the next chunk that nobody has taken, until there is none.
void pull_chunks(Pulling& all, Progress& progress, const std::function<void(u64 at, u64 bytes)>& queue) {
  try {
    for (u64 i = all.next++; i < all.chunks.size(); i = all.next++) {
      if (progress.cancelled) throw Cancelled{};
      queue(all.chunks[i].at, all.chunks[i].bytes);
      progress.add(all.chunks[i].bytes);
    }
  } catch (...) {
    const std::lock_guard lock{all.mutex};
    if (!all.failure) all.failure = std::current_exception();
    all.next = all.chunks.size();
  }
}

void relay(const Resources& with, const PlannedCopy& copy, MethodId id, Towards towards, Progress& progress) {
  const auto& request = copy.request;
  const auto& knobs = with.options.of(id, request.bytes);
  Paths paths{with, *copy.lane, towards, helpers_of(with, *copy.lane, knobs.links)};
  Pulling all{tapered(request.bytes,
                      chunk_for(request.bytes, knobs, paths.count(), with.hops.slot_bytes(), smallest_relayed),
                      paths.count())};
  const auto start = reinterpret_cast<u64>(towards == Towards::gpu ? request.dst : request.src);
  auto* pinned = static_cast<std::byte*>(towards == Towards::gpu ? const_cast<void*>(request.src) : request.dst);
  paths.run([&] {
    with.movers.run(static_cast<u32>(std::min<u64>(knobs.threads, all.chunks.size())), [&](u32) {
      const DuringCaptures allowed{with.driver};
      pull_chunks(all, progress, [&](u64 at, u64 bytes) { paths.queue(start + at, pinned + at, bytes, nullptr); });
    });
    if (all.failure) std::rethrow_exception(all.failure);
  });
}

// --- between two GPUs ------------------------------------------------------------------------------------------------

/// Whether kernels and copies of a GPU may touch an address. True if the driver does not say.
bool reaches(const Resources& with, u32 gpu, const void* address) {
  CUdeviceptr alias = 0;
  CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
  void* answer = &alias;
  const CurrentContext current{with.driver, with.gpus.at(gpu).context()};
  const CUresult status =
      with.driver.cuPointerGetAttributes(1, &asked, &answer, reinterpret_cast<CUdeviceptr>(address));
  return status != CUDA_SUCCESS || alias != 0;
}

}  // namespace

std::vector<Chunk> tapered(u64 bytes, u64 chunk, u64 paths) {
  const u64 least = std::min(chunk, last_chunk);
  std::vector<Chunk> chunks;
  for (u64 at = 0; at < bytes; at += chunks.back().bytes) {
    const u64 left = bytes - at, part = left / (2 * paths) / smallest_relayed * smallest_relayed;
    const u64 size = std::min(left, std::clamp(part, least, chunk));
    chunks.push_back({at, size, size});
  }
  return chunks;
}

bool fits_relay_to_gpu(const Resources& with, const PlannedCopy& copy) {
  return fits(with, copy, MethodId::relay_to_gpu, Towards::gpu);
}

bool fits_relay_to_host(const Resources& with, const PlannedCopy& copy) {
  return fits(with, copy, MethodId::relay_to_host, Towards::host);
}

void relay_to_gpu(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  relay(with, copy, MethodId::relay_to_gpu, Towards::gpu, progress);
}

void relay_to_host(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  relay(with, copy, MethodId::relay_to_host, Towards::host, progress);
}

Knobs for_links(const Resources& with, const PlannedCopy& copy, Knobs knobs, Towards towards) {
  constexpr u64 least_chunk = 2_MiB, slots_each = 2;
  const u64 links = 1 + helpers_of_copy(with, copy, knobs, towards).size(),
            worth = copy.request.bytes / (knobs.chunks_each * least_chunk),
            slots = with.options.arena_bytes / with.arena.slot_bytes(), cpus = usable_cpus();
  const u64 most = std::min({knobs.threads * links, worth, slots / slots_each, cpus});
  knobs.threads = static_cast<u32>(std::max<u64>(knobs.threads, most));
  static const u64 cache_bytes = last_level_cache_bytes();
  if (links > 1) knobs.chunk = chunk_in_cache(knobs.chunk, u64{knobs.threads} * knobs.depth, cache_bytes);
  return knobs;
}

u64 chunk_in_cache(u64 chunk, u64 slots, u64 cache_bytes) {
  // Four H200s with a cache of 300 MiB: a ring of 288 MiB moved half of what 64 to 96 MiB did.
  constexpr u64 part = 4, least = 1_MiB;
  if (cache_bytes == 0) return chunk;
  const u64 fitting = cache_bytes / part / std::max<u64>(slots, 1) / smallest_relayed * smallest_relayed;
  return std::clamp(fitting, std::min(least, chunk), chunk);
}

void run_ring_over_links(const Resources& with, const PlannedCopy& copy, RingWork& work, const Knobs& knobs,
                         Towards towards, Progress& progress) {
  const auto helpers = helpers_of_copy(with, copy, knobs, towards);
  if (helpers.empty()) return run_ring(with, *copy.lane, work, knobs, towards, progress);
  Paths paths{with, *copy.lane, towards, helpers};
  const auto start = reinterpret_cast<u64>(towards == Towards::gpu ? copy.request.dst : copy.request.src);
  work.queue_anywhere = [&](Slot& slot, Chunk chunk) {
    paths.queue(start + chunk.at, slot.data(), chunk.bytes, &slot);
  };
  paths.run([&] { run_ring(with, *copy.lane, work, knobs, towards, progress); });
}

bool fits_between_gpus(const Resources& with, const PlannedCopy& copy) {
  const auto is_device = [](const Location& one) { return one.memory == MemoryType::device; };
  if (!copy.lane || copy.captured || !can_ring(with) || !with.driver.cuStreamWaitEvent || !is_device(copy.dst) ||
      !is_device(copy.src) || copy.dst.device == copy.src.device ||
      !with.options.uses(MethodId::between_gpus, copy.request.bytes))
    return false;
  const auto to = with.gpus.index_of(copy.dst.device), from = with.gpus.index_of(copy.src.device);
  return to && from && !reaches(with, *to, copy.request.src) && !reaches(with, *from, copy.request.dst);
}

void between_gpus(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  const auto& request = copy.request;
  const auto& knobs = with.options.of(MethodId::between_gpus, request.bytes);
  const DuringCaptures allowed{with.driver};
  const CurrentContext current{with.driver, copy.lane->context};
  auto hop = with.hops.bounce(*with.gpus.index_of(copy.src.device), *with.gpus.index_of(copy.dst.device), *copy.lane);
  if (!hop) throw Error{ErrorKind::memory, "a copy of another stream uses the ring between these GPUs"};
  auto lease = with.arena.take_free(std::min(knobs.depth, Hops::slots));
  if (lease.size() < 2) throw Error{ErrorKind::memory, "the arena has no free slots for the ring between two GPUs"};
  std::vector<CUdeviceptr> memory;
  for (std::size_t i = 0; i < lease.size(); ++i) memory.push_back(reinterpret_cast<CUdeviceptr>(lease[i].data()));
  hop->use(memory);
  const u64 chunk = chunk_for(request.bytes, knobs, 1, with.arena.slot_bytes(), smallest_relayed);
  const BothGpus both{with, copy};
  try {
    const Event before{with.driver, CU_EVENT_DISABLE_TIMING};
    LINKSCOPE_CU(with.driver, cuEventRecord, before.get(), request.stream);
    hop->wait_for(before.get());
    for (std::size_t i = 0; i < lease.size(); ++i) lease[i].expose(hop->second());
    for (u64 at = 0; at < request.bytes; at += chunk) {
      if (progress.cancelled) throw Cancelled{};
      const u64 bytes = std::min(chunk, request.bytes - at);
      hop->queue(reinterpret_cast<u64>(request.dst) + at, reinterpret_cast<u64>(request.src) + at, bytes);
      progress.add(bytes);
    }
    hop->join(*copy.lane);
    both.join();
    const CurrentContext last{with.driver, hop->second().context};
    for (std::size_t i = 0; i < lease.size(); ++i) lease[i].guard(with.driver);
  } catch (...) {
    if (!hop.finish())
      throw Error{ErrorKind::lost, "a copy failed, and the driver cannot wait for its parts; end the process"};
    throw;
  }
}

}  // namespace linkscope
