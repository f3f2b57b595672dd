#include "platform/cuda/files.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <variant>

#include "base/error.hpp"
#include "gpu/cufile.hpp"

namespace linkscope {
namespace {

constexpr u64 granule = 4096;         // bytes: that of reads and writes past the page cache
constexpr double most_cached = 0.05;  // share of a cold file's pages; the kernel may keep those that it is writing

bool is_file(const Region& region) { return region.kind == MemKind::file; }

bool past_cache(const Program& program) { return program.cache == CacheState::cold; }

/// The library is loaded once for this process.
Cufile& cufile() {
  static Cufile one;
  return one;
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
  if (is_by_cufile(program, move)) {
    if (!past_cache(program)) return "cuFile moves files past the page cache: choose cache=cold";
    if (const auto& why = cufile().why_not(); !why.empty()) return why;
  }
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

bool is_by_cufile(const Program& program, const Move& move) {
  if (move.engine != Engine::file) return false;
  const Region &from = program.regions[move.from.region], &to = program.regions[move.to.region];
  return is_gpu_memory(from.kind) || is_gpu_memory(to.kind);
}

}  // namespace linkscope
