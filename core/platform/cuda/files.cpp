#include "platform/cuda/files.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <variant>

#include "base/error.hpp"
#include "gpu/cufile.hpp"
#include "gpu/pinned_range.hpp"
#include "host/topology.hpp"

namespace linkscope {
namespace {

constexpr u64 granule = 4096;         // bytes: that of reads and writes past the page cache
constexpr double most_cached = 0.05;  // share of a cold file's pages; the kernel may keep those that it is writing

bool is_file(const Region& region) { return region.kind == MemKind::file; }

bool past_cache(const Program& program) { return program.cache == CacheState::cold; }

bool is_of_gpu(const Program& program, const Move& move) {
  const Region &from = program.regions[move.from.region], &to = program.regions[move.to.region];
  return move.engine == Engine::file && (is_gpu_memory(from.kind) || is_gpu_memory(to.kind));
}

/// The library is loaded once for this process.
Cufile& cufile() {
  static Cufile one;
  return one;
}

void prepare_mapping(const CudaSession& session, ActorState& state, const Move& move) {
  const u32 threads = std::clamp(move.shape.threads, 1u, std::max(1u, move.shape.blocks));
  if (threads > 1) state.crew = std::make_unique<Crew>(state.node, threads);
  session.buffers[move.to.region]->device()->use();
  while (state.mapped_copies.size() < threads) state.mapped_copies.push_back(std::make_unique<Stream>(session.driver));
}

std::string why_no_requests(int refused) {
  return std::string{"the kernel refuses io_uring ("} + std::strerror(refused) + "); choose depth=1";
}

}  // namespace

std::string why_no_file_copy(const Program& program, const Actor& actor, const Move& move) {
  const Region &from = program.regions[move.from.region], &to = program.regions[move.to.region];
  if (move.engine != Engine::file)
    return is_file(from) || is_file(to) ? "files are read and written by engine file" : "";
  if (is_file(from) == is_file(to)) return "one end of a file's copy is a file, and one is memory";
  if (actor.kind != ActorKind::cpu_thread) return "files are read and written by CPU threads here";
  if (is_by_mapping(program, move)) {
    if (!is_file(from)) return "files in the page cache are mapped for reading only; cuFile writes past it: cache=cold";
    const auto cpus = host_nodes().at(actor.place.index).cpus.size();
    return move.shape.threads > cpus ? why_no_cpus(actor.place, move.shape.threads, cpus) : "";
  }
  if (is_by_cufile(program, move))
    if (const auto& why = cufile().why_not(); !why.empty()) return why;
  int refused = 0;
  if (move.shape.blocks > 1 && !Uring::open(move.shape.blocks, refused)) return why_no_requests(refused);
  if (!past_cache(program)) return "";
  for (const Span* span : {&move.from, &move.to})
    if ((span->offset | span->bytes | (span->slices > 1 ? span->stride : 0)) % granule != 0)
      return "files are read and written past the page cache in whole pages of 4 KiB; choose cache=hot or other sizes";
  return "";
}

void prepare_file(CudaSession& session, const Buffer& buffer, const Region& region) {
  const auto& file = buffer.memory().file();
  const bool cold = past_cache(session.program);
  if (cold && file.direct() < 0)
    throw Error{ErrorKind::unsupported,
                "the file system of " + region.at.path +
                    " has no reads and writes past the page cache (O_DIRECT); choose cache=hot"};
  // One page shows whether pages leave the cache at all: those of a file in memory do not.
  file.touch(cold ? granule : region.bytes);
  if (cold) file.evict();
  const bool stays = cold && file.cached_share(granule) > 0;
  const double share = file.cached_share(region.bytes);
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %% cached", 100 * share);
  if (stays || (cold && share > most_cached))
    throw Error{ErrorKind::unsupported, "a file in " + region.at.path + " does not leave the page cache (" + text +
                                            "), as on file systems in memory; choose cache=hot"};
  session.notes.emplace_back("page cache " + to_string(region.at), text);
}

void prepare_files(const CudaSession& session, ActorState& state) {
  u32 depth = 1;
  state.files.clear();
  for (const auto& step : state.actor->loop) {
    const auto* move = std::get_if<Move>(&step);
    if (!move || move->engine != Engine::file) continue;
    if (is_by_mapping(session.program, *move)) {
      prepare_mapping(session, state, *move);
      continue;
    }
    depth = std::max(depth, move->shape.blocks);
    for (const u32 region : {move->from.region, move->to.region}) {
      if (!is_file(session.program.regions[region])) continue;
      const auto& file = session.buffers[region]->memory().file();
      state.files.push_back({reinterpret_cast<Word>(file.data()), file.bytes(),
                             past_cache(session.program) ? file.direct() : file.buffered()});
      if (is_by_cufile(session.program, *move))
        state.direct_files[region] = std::make_shared<Cufile::File>(cufile(), file.direct());
    }
  }
  if (depth == 1) return;
  int refused = 0;
  state.requests = Uring::open(depth, refused);
  if (!state.requests) throw Error{ErrorKind::failed, why_no_requests(refused)};
  for (auto& file : state.files) file.queue = state.requests.get(), file.depth = depth;
}

void move_by_cufile(const CudaSession& session, const ActorState& state, const Move& move) {
  const bool reads = is_file(session.program.regions[move.from.region]);
  const Span &in_file = reads ? move.from : move.to, &in_memory = reads ? move.to : move.from;
  const Buffer& memory = *session.buffers[in_memory.region];
  memory.device()->use();
  const CUdeviceptr at = memory.address() + in_memory.offset_at(state.iteration);
  const auto& file = *state.direct_files.at(in_file.region);
  const u64 offset = in_file.offset_at(state.iteration);
  if (reads) file.read(at, in_file.bytes, offset);
  else file.write(at, in_file.bytes, offset);
}

bool is_by_cufile(const Program& program, const Move& move) { return is_of_gpu(program, move) && past_cache(program); }

bool is_by_mapping(const Program& program, const Move& move) {
  return is_of_gpu(program, move) && !past_cache(program);
}

void move_by_mapping(const CudaSession& session, const ActorState& state, const Move& move) {
  const auto& file = session.buffers[move.from.region]->memory().file();
  const Buffer& memory = *session.buffers[move.to.region];
  const CUdeviceptr to = memory.address() + move.to.offset_at(state.iteration);
  const u64 offset = move.from.offset_at(state.iteration), windows = std::max(1u, move.shape.blocks),
            bytes = move.from.bytes / windows;
  const auto copy_window = [&](u64 window, const Stream& stream) {
    const u64 at = window * bytes;
    MappedRange range{file.buffered(), offset + at, bytes};
    PinnedRange pinned{session.driver, range};
    LINKSCOPE_CU(session.driver, cuMemcpyHtoDAsync, to + at, range.at(offset + at), bytes, stream.get());
    stream.synchronize();
    pinned.end();
  };
  std::mutex one;
  std::exception_ptr failure;
  const auto threads = static_cast<u32>(state.mapped_copies.size());
  const auto part_of = [&](u32 part) {
    try {
      memory.device()->use();
      for (u64 window = part; window < windows; window += threads) copy_window(window, *state.mapped_copies[part]);
    } catch (...) {
      const std::scoped_lock lock{one};
      if (!failure) failure = std::current_exception();
    }
  };
  if (state.crew) state.crew->run(part_of);
  else part_of(0);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace linkscope
