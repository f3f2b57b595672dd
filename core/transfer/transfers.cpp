#include "transfer/transfers.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "host/own_memory.hpp"
#include "transfer/both_gpus.hpp"
#include "transfer/capture.hpp"
#include "transfer/overlaps.hpp"
#include "transfer/sizes.hpp"
#include "transfer/staged.hpp"

namespace linkscope {
namespace {

std::atomic<bool> is_child_of_fork{false};

std::optional<StagedWork> staged_work_named(const std::string& name) {
  const auto* found =
      std::find_if(staged_works.begin(), staged_works.end(), [&](StagedWork work) { return name == name_of(work); });
  if (found == staged_works.end()) return {};
  return *found;
}

void watch_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { is_child_of_fork = true; });
  (void)once;
}

[[noreturn]] void refuse_gpus() {
  throw Error{ErrorKind::lost,
              "CUDA does not work in a child of fork() after its parent has used it; start worker processes with the "
              "method 'spawn' or 'forkserver'"};
}

/// Whether this thread has a context, and so a default stream.
bool has_context(const Driver& driver) {
  CUcontext context = nullptr;
  LINKSCOPE_CU(driver, cuCtxGetCurrent, &context);
  return context != nullptr;
}

/// Whether a stream has no earlier work. A plain copy behind other work would wait for it, which the application may not
/// expect.
bool is_idle(const Driver& driver, CUstream stream) {
  return driver.cuStreamQuery && driver.cuStreamQuery(stream) == CUDA_SUCCESS;
}

}  // namespace

Transfers::Transfers(const Options& options)
    : options_{options},
      gpus_{driver_},
      arena_{driver_, options.arena_bytes, options.slot_bytes},
      hops_{driver_, gpus_, 2 * options.slot_bytes},
      registrations_{driver_, gpus_, options.registered_bytes} {
  watch_forks();
  if (driver_.usable()) tuning_ = load_tuning(options_, fingerprint());
  else tuning_.note = driver_.why_not();
  if (driver_.usable()) set_helpers(std::vector{options_.helpers});
  find_smallest();
}

Transfers::~Transfers() {
  if (!gpus_.any_context() && registrations_.bytes() == 0) return;
  try {
    const CUcontext context = gpus_.made_context();
    const CurrentContext current{driver_, context};
    hops_.clear();
    registrations_.clear();
    arena_.clear();
  } catch (const Error&) {  // the driver is shutting down and has freed the memory
  }
}

bool Transfers::is_in_child_of_fork() { return is_child_of_fork; }

void Transfers::find_smallest() {
  small_copy_ = driver_.usable() ? driver_.cuMemcpyAsync : nullptr;
  small_ = ~u64{0};
  for (const auto& method : copy_methods())
    for (const u64 start : size_classes)
      if (method.id != MethodId::plain && options_.uses(method.id, start)) small_ = std::min(small_, start);
  if (options_.plain) small_ = ~u64{0};
}

void Transfers::set(MethodId id, u64 bytes, const Knobs& knobs) {
  check(knobs);
  options_.of(id, bytes) = knobs;
  find_smallest();
}

void Transfers::set(Towards towards, u64 mean_bytes, const BlockKnobs& knobs) {
  check(knobs);
  options_.of(towards, mean_bytes) = knobs;
}

void Transfers::set(StagedWork work, u64 bytes, const Knobs& knobs) {
  check(knobs);
  options_.of(work, bytes) = knobs;
}

void Transfers::set(const std::string& name, u64 bytes, const Knobs& knobs) {
  if (const auto work = staged_work_named(name)) set(*work, bytes, knobs);
  else set(method_named(name).id, bytes, knobs);
}

const Knobs& Transfers::knobs(const std::string& name, u64 bytes) const {
  if (const auto work = staged_work_named(name)) return options_.of(*work, bytes);
  return options_.of(method_named(name).id, bytes);
}

void Transfers::set_helpers(const std::vector<u32>& gpus) {
  for (const u32 gpu : gpus)
    if (gpu >= gpus_.facts().size())
      throw Error{ErrorKind::usage, "helper gpu:" + std::to_string(gpu) + " is not here; this process sees " +
                                        std::to_string(gpus_.facts().size()) + " GPUs"};
  options_.helpers = gpus;
}

Tuning Transfers::tuning() const {
  Tuning known = tuning_;
  if (const auto plain = checks_.text(); !plain.empty()) known.note += "; " + plain;
  return known;
}

std::string Transfers::save_tuning(const std::string& path, const std::string& version) const {
  const std::string machine = fingerprint(), file = path.empty() ? tuning_path(machine) : path;
  write_tuning(options_, file, machine, version);
  return file;
}

void Transfers::register_memory(void* start, u64 bytes) {
  if (is_child_of_fork && driver_.usable()) refuse_gpus();
  refuse_negative("the size of the memory", bytes);
  registrations_.add(start, bytes);
}

void Transfers::unregister_memory(void* start) {
  if (is_child_of_fork && driver_.usable()) refuse_gpus();
  registrations_.remove(start);
}

PlannedCopy Transfers::look_up(const CopyRequest& request) {
  if (request.bytes && (!request.dst || !request.src))
    throw Error{ErrorKind::usage, std::string{"the "} + (request.dst ? "source" : "destination") + " has address 0"};
  refuse_negative("the size of a copy", request.bytes);
  if (overlap(request)) throw Error{ErrorKind::usage, "source and destination overlap; copy through a third buffer"};
  PlannedCopy copy{request, {}, {}, {}, false};
  copy.request.stream = driver_stream(request.stream);
  copy.has_unknown_order = copy.request.stream != nullptr;
  if (!driver_.usable()) return copy;
  // The parent's threads and GPUs are not here, but a copy between two ranges of host memory needs neither.
  if (is_child_of_fork && !copy.request.stream && can_read(request.src, request.bytes) &&
      can_write(request.dst, request.bytes))
    return copy;
  if (is_child_of_fork) refuse_gpus();
  registrations_.require_writable(request.dst, request.bytes);
  copy.dst = locate_all(driver_, request.dst, request.bytes);
  copy.src = locate_all(driver_, request.src, request.bytes);
  if (copy.dst.memory == MemoryType::pinned) registrations_.require_alive(request.dst, request.bytes);
  if (copy.src.memory == MemoryType::pinned) registrations_.require_alive(request.src, request.bytes);
  copy.lane = gpus_.lane_of(request.stream, copy.dst.memory == MemoryType::device ? copy.dst.device : copy.src.device);
  copy.captured = copy.lane && captured(*copy.lane);
  if (!copy.lane) copy.has_unknown_order = copy.request.stream || has_context(driver_);
  return copy;
}

/// As locate_all. In a child of fork() the driver must not be asked, and memory is the host's or out of reach.
Location Transfers::find(const void* start, u64 bytes) const {
  if (!is_child_of_fork || !driver_.usable()) return locate_all(driver_, start, bytes);
  if (!can_read(start, bytes)) refuse_gpus();
  return {};
}

bool Transfers::captured(const CopyLane& lane) const {
  const CurrentContext current{driver_, lane.context};
  return is_captured(driver_, lane.stream);
}

void Transfers::copy_large(const CopyRequest& request, Progress& progress) {
  if (request.bytes == 0) return;
  const PlannedCopy copy = look_up(request);
  const auto& method = choose(copy);
  // Only what was tuned is checked: without a file the first copies of a process must not pay for a check.
  if (tuning_.file.empty() || method.id == MethodId::plain || method.id == MethodId::host) run(method, copy, progress);
  else run_timed(method, copy, progress);
}

const CopyMethod& Transfers::choose(const PlannedCopy& copy) {
  const auto& method = method_for(resources(), copy);
  return checks_.prefers_plain(method.id, copy.request.bytes) ? copy_methods().back() : method;
}

void Transfers::run_timed(const CopyMethod& method, const PlannedCopy& copy, Progress& progress) {
  using Kind = PlainChecks::Kind;
  const u64 bytes = copy.request.bytes;
  const auto kind = checks_.next(method.id, bytes);
  if (kind == Kind::none) return run(method, copy, progress);
  const CurrentContext current{driver_, copy.lane->context};
  const DuringCaptures allowed{driver_};
  if (!is_idle(driver_, copy.lane->stream)) return run(method, copy, progress);
  const auto begin = std::chrono::steady_clock::now();
  run(kind == Kind::plain ? copy_methods().back() : method, copy, progress);
  LINKSCOPE_CU(driver_, cuStreamSynchronize, copy.lane->stream);
  checks_.add(method.id, bytes, kind, Seconds{std::chrono::steady_clock::now() - begin}.count());
}

void Transfers::run(const CopyMethod& method, const PlannedCopy& copy, Progress& progress) {
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
    fallbacks_.note(std::string{method.name} + ": " + error.what());
  }
  // The driver's copy is queued behind the chunks, so it has the last word on every byte.
  copy_plainly(resources(), copy);
  progress.done = copy.request.bytes;
  ++counts_[static_cast<std::size_t>(MethodId::plain)];
}

/// Runs a method of many blocks. If it fails, each block is a copy of its own, queued behind what the method queued.
template <class Method>
void Transfers::or_one_by_one(std::span<const Block> blocks, CUstream stream, Method method) {
  try {
    method();
    return;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::lost || error.kind() == ErrorKind::usage) throw;
    fallbacks_.note(std::string{"blocks: "} + error.what());
  }
  copy_one_by_one(blocks, stream);
}

void Transfers::copy_one_by_one(std::span<const Block> blocks, CUstream stream) {
  for (const auto& block : blocks) copy({to_pointer(block.dst), to_pointer(block.src), block.bytes, stream});
}

/// Blocks whose other end is pageable.
void Transfers::pack(const std::vector<Block>& blocks, StagedWork work, const CopyLane& lane, CUstream stream) {
  if (blocks.empty()) return;
  if (options_.of(work, mean_bytes(blocks)).plain) return copy_one_by_one(blocks, stream);
  or_one_by_one(blocks, stream, [&] { copy_packed(resources(), blocks, lane, work == StagedWork::packed_to_gpu); });
}

void Transfers::copy_blocks(std::span<const Block> blocks, CUstream stream) {
  const auto first = std::find_if(blocks.begin(), blocks.end(), [](const Block& block) { return block.bytes > 0; });
  if (first == blocks.end()) return;
  refuse_overlaps(blocks);
  for (const auto& block : blocks) registrations_.require_writable(to_pointer(block.dst), block.bytes);
  const PlannedCopy copy = look_up({to_pointer(first->dst), to_pointer(first->src), first->bytes, stream});
  SortedBlocks sorted;
  // A graph would keep the list of blocks that is in a slot, which other copies use later.
  if (options_.plain || !copy.lane || copy.captured || !can_ring(resources()))
    sorted.others = {blocks.begin(), blocks.end()};
  else sorted = sort_blocks(resources(), blocks, *copy.lane);
  or_one_by_one(sorted.direct, stream, [&] { copy_direct(resources(), sorted.direct, *copy.lane); });
  if (copy.lane) pack(sorted.to_gpu, StagedWork::packed_to_gpu, *copy.lane, stream);
  if (copy.lane) pack(sorted.from_gpu, StagedWork::packed_to_host, *copy.lane, stream);
  copy_one_by_one(sorted.others, stream);
}

void Transfers::read(const FileReader& file, std::span<const FilePiece> pieces, CUstream stream, ReadCounts& counts,
                     Progress& progress) {
  std::optional<Location> all;
  for (const auto& piece : pieces) {
    refuse_negative("the offset in the file", piece.offset);
    refuse_negative("the size of a piece of the file", piece.bytes);
    if (piece.bytes == 0) continue;
    if (piece.offset > file.size() || piece.bytes > file.size() - piece.offset)
      throw Error{ErrorKind::usage, "the file has " + std::to_string(file.size()) + " bytes, and " +
                                        std::to_string(piece.bytes) + " from byte " + std::to_string(piece.offset) +
                                        " are needed; it is truncated"};
    const auto dst = find(piece.dst, piece.bytes);
    const bool on_gpu = dst.memory == MemoryType::device;
    if (!on_gpu && (!dst.on_host() || !can_write(piece.dst, piece.bytes)))
      throw Error{ErrorKind::usage, "a destination is no memory of a GPU, and none that this process can write"};
    if (all && (on_gpu || all->memory == MemoryType::device) && dst != *all)
      throw Error{ErrorKind::usage,
                  "one call reads to memory of one GPU, or of the host; call it once for each of them"};
    all = dst;
  }
  if (!all || all->memory != MemoryType::device) return read_to_host(resources(), file, pieces, counts, progress);
  const auto lane = gpus_.lane_of(stream, all->device);
  if (!lane || captured(*lane) || !can_ring(resources()))
    throw Error{ErrorKind::usage, "a file is read on a stream of a GPU's primary context that is not captured"};
  read_to_gpu(resources(), file, pieces, *lane, counts, progress);
}

void Transfers::save(const std::string& path, std::span<const FileSource> sources, bool durable, WriteCounts& counts,
                     Progress& progress) {
  u64 bytes = 0;
  for (const auto& source : sources) {
    refuse_negative("the size of a source", source.bytes);
    bytes += source.bytes;
  }
  FileWriter file{path, bytes};
  try {
    write(file, sources, counts, progress);
    if (progress.report) progress.report(bytes);  // other threads may have written all
    if (progress.cancelled) throw Cancelled{};
    file.commit(durable);
  } catch (const Cancelled&) {
    throw Cancelled{"the saving was cancelled; the file is as it was before" + file.discard()};
  } catch (const Error& error) {
    if (file.is_in_place()) throw;
    const auto stays = file.discard();
    throw Error{error.kind(), std::string{error.what()} + "; " + std::to_string(counts.direct + counts.buffered) +
                                  " of " + std::to_string(bytes) + " bytes were written" +
                                  (stays.empty() ? ", and are removed" : stays)};
  }
}

void Transfers::write(const FileWriter& file, std::span<const FileSource> sources, WriteCounts& counts,
                      Progress& progress) {
  // Parts of one GPU and stream, with those of the host between them, make one pass of the ring.
  std::vector<FilePart> parts;
  std::optional<CUdevice> gpu;
  CUstream stream = nullptr;
  const auto pass = [&] {
    if (parts.empty()) return;
    if (!gpu) return write_from_host(resources(), file, parts, counts, progress);
    const auto lane = gpus_.lane_of(stream, *gpu);
    if (!lane || captured(*lane) || !can_ring(resources()))
      throw Error{ErrorKind::usage, "a GPU's memory is saved on a stream of its primary context that is not captured"};
    write_from_gpu(resources(), file, parts, *lane, counts, progress);
  };
  u64 offset = 0;
  for (const auto& source : sources) {
    if (source.bytes == 0) continue;
    const auto from = find(source.src, source.bytes);
    const bool on_gpu = from.memory == MemoryType::device;
    // The CPU copies the host's parts between those of a GPU to slots.
    if (!on_gpu && (!from.on_host() || !can_read(source.src, source.bytes) ||
                    pages_.first_refused(source.src, source.bytes, Access::read)))
      throw Error{ErrorKind::usage, "a source is no memory of a GPU, and none that this process can read"};
    if (on_gpu && gpu && (from.device != *gpu || source.stream != stream)) {
      pass();
      parts.clear();
      gpu.reset();
    }
    if (on_gpu) gpu = from.device, stream = source.stream;
    parts.push_back({offset, source.bytes, static_cast<const std::byte*>(source.src), on_gpu});
    offset += source.bytes;
  }
  pass();
}

void Transfers::follow_other_gpu(PlannedCopy copy, CUstream stream) {
  copy.lane->stream = stream;
  const BothGpus waits{resources(), copy};
}

const char* Transfers::method_of(const CopyRequest& request) { return choose(look_up(request)).name; }

Transfers::Prepared Transfers::prepare(const CopyRequest& request) {
  Prepared prepared{*this, look_up(request)};
  const auto& [copied, dst, src, lane, captured, unknown_order] = prepared.copy_;
  if (choose(prepared.copy_).id != MethodId::plain || !driver_.usable() || !lane) return prepared;
  if (src.on_host() && dst.memory == MemoryType::device)
    prepared.direct_ = [](const Prepared& p) {
      const auto& r = p.copy_.request;
      return p.owner_.driver_.cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(r.dst), r.src, r.bytes, r.stream);
    };
  else if (src.memory == MemoryType::device && dst.on_host())
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
  if (is_child_of_fork) return owner_.copy_large(copy_.request, progress);
  PlannedCopy copy = copy_;
  copy.captured = copy.lane && owner_.captured(*copy.lane);  // a capture may have begun
  owner_.run(owner_.choose(copy), copy, progress);
}

}  // namespace linkscope
