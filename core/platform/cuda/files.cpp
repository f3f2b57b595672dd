#include "platform/cuda/files.hpp"

#include <cstdio>
#include <variant>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr u64 granule = 4096;         // bytes: that of reads and writes past the page cache
constexpr double most_cached = 0.05;  // share of a cold file's pages; the kernel may keep those that it is writing

bool is_file(const Region& region) { return region.kind == MemKind::file; }

bool past_cache(const Program& program) { return program.cache == CacheState::cold; }

}  // namespace

std::string why_no_file_copy(const Program& program, const Actor& actor, const Move& move) {
  const Region &from = program.regions[move.from.region], &to = program.regions[move.to.region];
  if (move.engine != Engine::file)
    return is_file(from) || is_file(to) ? "files are read and written by engine file" : "";
  if (is_file(from) == is_file(to)) return "one end of a file's copy is a file, and one is memory";
  if (actor.kind != ActorKind::cpu_thread) return "files are read and written by CPU threads here";
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

std::vector<FileMemory> files_of(const CudaSession& session, const Actor& actor) {
  std::vector<FileMemory> files;
  for (const auto& step : actor.loop) {
    const auto* move = std::get_if<Move>(&step);
    if (!move || move->engine != Engine::file) continue;
    for (const u32 region : {move->from.region, move->to.region}) {
      if (!is_file(session.program.regions[region])) continue;
      const auto& file = session.buffers[region]->memory().file();
      files.push_back({reinterpret_cast<Word>(file.data()), file.bytes(),
                       past_cache(session.program) ? file.direct() : file.buffered()});
    }
  }
  return files;
}

}  // namespace linkscope
