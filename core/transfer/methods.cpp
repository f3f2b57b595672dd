#include "transfer/methods.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "host/own_memory.hpp"
#include "transfer/device_copies.hpp"
#include "transfer/pump.hpp"
#include "transfer/relay.hpp"
#include "transfer/staged.hpp"

namespace linkscope {
namespace {

using namespace literals;

constexpr u64 smallest_chunk = 128_KiB;
constexpr u64 huge_page = 2_MiB;  // two threads that fault on the same page wait for each other

std::byte* bytes_at(void* start, u64 offset) { return static_cast<std::byte*>(start) + offset; }
const std::byte* bytes_at(const void* start, u64 offset) { return static_cast<const std::byte*>(start) + offset; }

/// Throws Error{usage} for pageable memory whose ends a CPU cannot read or write: without this the process would end.
void check_host_memory(const PlannedCopy& copy) {
  const auto& [dst, src, bytes, stream, fresh] = copy.request;
  if (copy.src.memory == MemoryType::pageable && !can_read(src, bytes))
    throw Error{
        ErrorKind::usage,
        "the source is no memory that this process can read, nor known memory of a GPU: it was freed, belongs to "
        "another process or GPU, or is shorter than " +
            bytes_text(bytes)};
  if (copy.dst.memory == MemoryType::pageable && !can_write(dst, bytes))
    throw Error{
        ErrorKind::usage,
        "the destination is no memory that this process can write, nor known memory of a GPU: it is read-only, was "
        "freed, or is shorter than " +
            bytes_text(bytes)};
}

/// The same for all pages of a copy that CPU threads make.
void check_all_pages(const Resources& with, const PlannedCopy& copy) {
  const auto& [dst, src, bytes, stream, fresh] = copy.request;
  const auto refuse = [](const char* side, u64 at, const char* doing) {
    throw Error{ErrorKind::usage, std::string{"the "} + side + " has no memory that this process can " + doing +
                                      " at byte " + std::to_string(at) +
                                      ": a page there was freed, or is protected; copy the parts around it"};
  };
  if (copy.src.memory == MemoryType::pageable)
    if (const auto at = with.pages.first_refused(src, bytes, Access::read)) refuse("source", *at, "read");
  if (copy.dst.memory == MemoryType::pageable)
    if (const auto at = with.pages.first_refused(dst, bytes, Access::write)) refuse("destination", *at, "write");
}

// --- through the ring ------------------------------------------------------------------------------------------------

/// The chunks of a copy: later ones begin where `address` is a multiple of `granule`.
std::vector<Chunk> divide(u64 bytes, u64 chunk, u64 address, u64 granule) {
  std::vector<Chunk> chunks;
  u64 size = chunk - address % std::min(granule, chunk);
  for (u64 at = 0; at < bytes; at += size, size = chunk) {
    size = std::min(size, bytes - at);
    chunks.push_back({at, size, size});
  }
  return chunks;
}

bool fits_ring_to_gpu(const Resources& with, const PlannedCopy& copy) {
  return copy.lane && !copy.captured && can_ring(with) && copy.src.memory == MemoryType::pageable &&
         copy.dst.memory == MemoryType::device && with.options.uses(MethodId::ring_to_gpu, copy.request.bytes);
}

/// Whether a kernel of the stream's GPU moves the chunks. It has no other links: with helpers, copy engines take part.
/// Memory of another GPU is left to copy engines: a kernel without peer access to it would end the context.
bool by_kernel(const Resources& with, const PlannedCopy& copy, const Knobs& knobs, const Location& memory) {
  return knobs.sm_blocks && with.gpus.facts()[copy.lane->gpu].handle == memory.device &&
         helpers_of(with, *copy.lane, knobs.links).empty();
}

void ring_to_gpu(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  const auto& request = copy.request;
  const auto& knobs = with.options.of(MethodId::ring_to_gpu, request.bytes);
  const auto dst = reinterpret_cast<CUdeviceptr>(request.dst);
  if (by_kernel(with, copy, knobs, copy.dst)) {
    auto* host = static_cast<std::byte*>(const_cast<void*>(request.src));
    return run_pump(with, *copy.lane, {dst, host, request.bytes}, knobs, Towards::gpu, progress);
  }
  constexpr u64 granule = 4_KiB;
  const auto shared = for_links(with, copy, knobs, Towards::gpu);
  RingWork work;
  work.chunks =
      divide(request.bytes, chunk_for(request.bytes, shared, shared.threads, with.arena.slot_bytes(), smallest_chunk),
             dst, granule);
  work.by_cpu = [&](std::byte* slot, Chunk chunk) {
    copy_in_pieces(slot, bytes_at(request.src, chunk.at), chunk.bytes, knobs.piece);
  };
  work.queue = [&](std::byte* slot, Chunk chunk) {
    LINKSCOPE_CU(with.driver, cuMemcpyHtoDAsync, dst + chunk.at, slot, chunk.bytes, copy.lane->stream);
  };
  run_ring_over_links(with, copy, work, shared, Towards::gpu, progress);
}

void ring_from_gpu(const Resources& with, const PlannedCopy& copy, const Knobs& knobs, u64 smallest,
                   Progress& progress) {
  const auto& request = copy.request;
  const auto src = reinterpret_cast<CUdeviceptr>(request.src);
  if (by_kernel(with, copy, knobs, copy.src))
    return run_pump(with, *copy.lane, {src, static_cast<std::byte*>(request.dst), request.bytes}, knobs, Towards::host,
                    progress);
  const auto shared = for_links(with, copy, knobs, Towards::host);
  RingWork work;
  work.chunks =
      divide(request.bytes, chunk_for(request.bytes, shared, shared.threads, with.arena.slot_bytes(), smallest),
             reinterpret_cast<u64>(request.dst), huge_page);
  work.by_cpu = [&](std::byte* slot, Chunk chunk) {
    copy_in_pieces(bytes_at(request.dst, chunk.at), slot, chunk.bytes, knobs.piece);
  };
  work.queue = [&](std::byte* slot, Chunk chunk) {
    LINKSCOPE_CU(with.driver, cuMemcpyDtoHAsync, slot, src + chunk.at, chunk.bytes, copy.lane->stream);
  };
  run_ring_over_links(with, copy, work, shared, Towards::host, progress);
}

bool fits_from_gpu(const Resources& with, const PlannedCopy& copy, MethodId id) {
  return copy.lane && !copy.captured && can_ring(with) && copy.src.memory == MemoryType::device &&
         copy.dst.memory == MemoryType::pageable && with.options.uses(id, copy.request.bytes);
}

bool fits_ring_to_host(const Resources& with, const PlannedCopy& copy) {
  return fits_from_gpu(with, copy, MethodId::ring_to_host);
}

void ring_to_host(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  ring_from_gpu(with, copy, with.options.of(MethodId::ring_to_host, copy.request.bytes), smallest_chunk, progress);
}

bool fits_ring_to_fresh(const Resources& with, const PlannedCopy& copy) {
  return fits_from_gpu(with, copy, MethodId::ring_to_fresh) &&
         (copy.request.fresh || is_untouched(copy.request.dst, copy.request.bytes));
}

void ring_to_fresh(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  request_huge_pages(copy.request.dst, copy.request.bytes);
  ring_from_gpu(with, copy, with.options.of(MethodId::ring_to_fresh, copy.request.bytes), huge_page, progress);
}

// --- on the host -----------------------------------------------------------------------------------------------------

bool fits_host(const Resources& with, const PlannedCopy& copy) {
  if (!copy.src.on_host() || !copy.dst.on_host() || copy.captured) return false;
  return copy.lane ? with.options.uses(MethodId::host, copy.request.bytes) : !copy.has_unknown_order;
}

void copy_on_host(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  const auto& request = copy.request;
  const auto& knobs = with.options.of(MethodId::host, request.bytes);
  if (copy.lane) {
    const CurrentContext current{with.driver, copy.lane->context};
    LINKSCOPE_CU(with.driver, cuStreamSynchronize, request.stream);
  }
  const u64 chunk = std::min(knobs.chunk, std::max<u64>(request.bytes, 1)),
            chunks = (request.bytes + chunk - 1) / chunk;
  share_out(with.movers, chunks, knobs.threads, progress, [&](u64 i) {
    const u64 at = i * chunk, bytes = std::min(chunk, request.bytes - at);
    copy_in_pieces(bytes_at(request.dst, at), bytes_at(request.src, at), bytes, knobs.piece);
    progress.add(bytes);
  });
}

// --- by the driver ---------------------------------------------------------------------------------------------------

bool fits_plain(const Resources&, const PlannedCopy&) { return true; }

void run_plain(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  if (progress.cancelled) throw Cancelled{};
  copy_plainly(with, copy);
  progress.done = copy.request.bytes;
}

/// What the driver's message does not say: which copy failed, and whether a side is too short.
std::string about(const Resources& with, const PlannedCopy& copy) {
  const auto& request = copy.request;
  std::string text = "a copy of " + bytes_text(request.bytes) + " from " + to_string(copy.src) + " to " +
                     to_string(copy.dst) + " failed";
  for (const auto& [name, start] :
       {std::pair<const char*, const void*>{"source", request.src}, {"destination", request.dst}})
    if (const u64 has = bytes_from(with.driver, start); has && has < request.bytes)
      text += "; the allocation of the " + std::string{name} + " ends after " + bytes_text(has) +
              ": pass a larger one, or copy fewer bytes";
  return text;
}

constexpr CopyMethod methods[] = {
    {MethodId::host, "host", "CPU threads copy between two ranges of host memory", fits_host, copy_on_host},
    {MethodId::ring_to_gpu, "ring_to_gpu", "CPU threads fill pinned slots, from which the GPU copies", fits_ring_to_gpu,
     ring_to_gpu},
    {MethodId::ring_to_fresh, "ring_to_fresh",
     "the GPU fills pinned slots; CPU threads copy to memory that they touch first, in huge pages", fits_ring_to_fresh,
     ring_to_fresh},
    {MethodId::ring_to_host, "ring_to_host", "the GPU fills pinned slots, from which CPU threads copy",
     fits_ring_to_host, ring_to_host},
    {MethodId::relay_to_gpu, "relay_to_gpu", "pinned memory goes to the GPU over its own link and those of helper GPUs",
     fits_relay_to_gpu, relay_to_gpu},
    {MethodId::relay_to_host, "relay_to_host",
     "pinned memory is filled over the GPU's own link and those of helper GPUs", fits_relay_to_host, relay_to_host},
    {MethodId::between_gpus, "between_gpus", "pinned slots take chunks from one GPU to another that has no peer access",
     fits_between_gpus, between_gpus},
    {MethodId::within_gpu, "within_gpu", "SMs or their TMA copy within the memory of one GPU", fits_within_gpu,
     copy_within_gpu},
    {MethodId::between_peers, "between_peers", "SMs or their TMA copy between two GPUs that have peer access",
     fits_between_peers, copy_between_peers},
    {MethodId::plain, "plain", "one call of the driver", fits_plain, run_plain},
};
static_assert(std::size(methods) == method_count);

}  // namespace

u64 chunk_for(u64 bytes, const Knobs& knobs, u64 workers, u64 slot_bytes, u64 smallest) {
  const u64 most = std::min(knobs.chunk, slot_bytes),
            even = bytes / (u64{knobs.chunks_each} * workers) / smallest * smallest;
  return std::clamp(even, std::min(smallest, most), most);
}

void copy_in_pieces(std::byte* to, const std::byte* from, u64 bytes, u64 piece) {
  if (piece == 0) piece = bytes;
  for (u64 at = 0; at < bytes; at += piece) std::memcpy(to + at, from + at, std::min(piece, bytes - at));
}

void copy_plainly(const Resources& with, const PlannedCopy& copy) {
  const auto& [dst, src, bytes, stream, fresh] = copy.request;
  if (!with.driver.usable())
    throw Error{ErrorKind::usage, "a copy on a stream needs a GPU, and " + with.driver.why_not()};
  std::optional<CurrentContext> current;
  if (copy.lane) current.emplace(with.driver, copy.lane->context);
  try {
    LINKSCOPE_CU(with.driver, cuMemcpyAsync, reinterpret_cast<CUdeviceptr>(dst), reinterpret_cast<CUdeviceptr>(src),
                 bytes, stream);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::failed) check_host_memory(copy);
    throw Error{error.kind(), about(with, copy) + " (" + error.what() + ")"};
  }
}

std::span<const CopyMethod> copy_methods() { return methods; }

const CopyMethod& method_for(const Resources& with, const PlannedCopy& copy) {
  const auto& plain = methods[method_count - 1];
  const auto fits = [&](const CopyMethod& method) {
    return (!with.options.plain || method.id == MethodId::host) && method.fits(with, copy);
  };
  const auto found = std::find_if(std::begin(methods), std::end(methods), fits);
  const auto& method = found == std::end(methods) ? plain : *found;
  if (!with.options.plain) check_host_memory(copy);  // the driver would end the process for freed memory of a GPU
  if (method.id != MethodId::plain) check_all_pages(with, copy);
  return method;
}

const CopyMethod& method_named(const std::string& name) {
  std::string names;
  for (const auto& method : methods) {
    if (name == method.name) return method;
    names += (names.empty() ? "" : ", ") + std::string{method.name};
  }
  throw Error{ErrorKind::usage, "'" + name + "' is not a method of copying; write one of " + names};
}

}  // namespace linkscope
