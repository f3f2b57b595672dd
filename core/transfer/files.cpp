#include "transfer/files.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "transfer/direct_files.hpp"
#include "transfer/disk_reads.hpp"
#include "transfer/mapped_files.hpp"
#include "transfer/staged.hpp"

namespace linkscope {
namespace {

u64 granule_before(u64 offset) { return offset / file_granule * file_granule; }

/// Pieces of at most `most` bytes in the order of the file.
std::vector<FilePiece> in_order(std::span<const FilePiece> pieces, u64 most) {
  std::vector<FilePiece> ordered;
  for (const auto& piece : pieces)
    for (u64 at = 0; at < piece.bytes; at += most)
      ordered.push_back({piece.offset + at, std::min(most, piece.bytes - at), static_cast<std::byte*>(piece.dst) + at});
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return ordered;
}

u64 total_bytes(std::span<const FilePiece> pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), u64{0},
                         [](u64 sum, const FilePiece& one) { return sum + one.bytes; });
}

/// Chunks of neighbouring pieces whose range of the file fits into a slot: `at` and `count` are those of the pieces.
std::vector<Chunk> chunks_of(const std::vector<FilePiece>& pieces, u64 slot_bytes) {
  std::vector<Chunk> chunks;
  u64 start = 0, furthest = 0;
  for (u64 i = 0; i < pieces.size(); ++i) {
    const u64 end = pieces[i].offset + pieces[i].bytes;
    // A chunk is read up to the end of its last piece. Pieces may overlap, and one that ends earlier begins a new chunk.
    if (chunks.empty() || end < furthest || granule_before(end - 1) + file_granule - start > slot_bytes) {
      start = granule_before(pieces[i].offset);
      chunks.push_back({i, 0, 0});
    }
    furthest = end;
    ++chunks.back().count;
    chunks.back().bytes += pieces[i].bytes;
  }
  return chunks;
}

/// The range of the file that fills a slot with a chunk. It begins at a granule.
FileRange range_of(const std::vector<FilePiece>& pieces, Chunk chunk) {
  const auto& last = pieces[chunk.at + chunk.count - 1];
  const u64 start = granule_before(pieces[chunk.at].offset);
  return {start, last.offset + last.bytes - start};
}

struct ByState {
  std::vector<FilePiece> cached, cold;  // in the order of the file
};

/// Asks for the state of whole chunks: a question for each small piece would take longer than its copy. The kernel looks up
/// each page, so one thread would take a quarter of the time of the copies.
ByState by_state(const Resources& with, const FileReader& file, std::span<const FilePiece> wanted, Progress& progress) {
  const u64 slot_bytes = with.arena.slot_bytes();
  const auto pieces = in_order(wanted, slot_bytes - file_granule);
  const auto chunks = chunks_of(pieces, slot_bytes);
  std::vector<char> cached(chunks.size());
  share_out(with.movers, chunks.size(), with.options.of(MethodId::host, total_bytes(wanted)).threads, progress,
            [&](u64 i) {
              const auto [offset, bytes] = range_of(pieces, chunks[i]);
              cached[i] = file.is_cached(offset, bytes);
            });
  ByState found;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto begin = pieces.begin() + static_cast<std::ptrdiff_t>(chunks[i].at);
    auto& of = cached[i] ? found.cached : found.cold;
    of.insert(of.end(), begin, begin + static_cast<std::ptrdiff_t>(chunks[i].count));
  }
  return found;
}

/// One thread reads into ordinary memory, which the driver copies.
void read_plainly(const Resources& with, const FileReader& file, std::span<const FilePiece> pieces,
                  const CopyLane& lane, ReadCounts& counts, Progress& progress) {
  const CurrentContext current{with.driver, lane.context};
  std::vector<std::byte> buffer;
  for (const auto& [offset, bytes, dst] : pieces) {
    if (progress.cancelled) throw Cancelled{};
    buffer.resize(std::max(buffer.size(), bytes));
    file.read(buffer.data(), offset, bytes, counts);
    LINKSCOPE_CU(with.driver, cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(dst), buffer.data(), bytes, lane.stream);
    // A GPU that reads pageable memory itself may still do so when the call returns.
    LINKSCOPE_CU(with.driver, cuStreamSynchronize, lane.stream);
    progress.add(bytes);
  }
}

/// Reads pieces of one state into slots. Threads read pieces of the page cache in any case.
void read_staged(const Resources& with, const FileReader& file, std::span<const FilePiece> wanted, const Knobs& knobs,
                 bool is_cold, const CopyLane& lane, ReadCounts& counts, Progress& progress) {
  const u64 slot_bytes = std::clamp(knobs.chunk, 2 * file_granule, with.arena.slot_bytes());
  // A piece of a large tensor begins anywhere in a granule, and fills a slot with its first and last granule.
  const auto pieces = in_order(wanted, slot_bytes - file_granule);
  const auto range = [&](Chunk chunk) { return range_of(pieces, chunk); };
  const auto queue = [&](std::byte* slot, Chunk chunk) {
    const u64 start = granule_before(pieces[chunk.at].offset);
    for (u64 i = chunk.at; i < chunk.at + chunk.count; ++i)
      LINKSCOPE_CU(with.driver, cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(pieces[i].dst),
                   slot + (pieces[i].offset - start), pieces[i].bytes, lane.stream);
  };
  const auto chunks = chunks_of(pieces, slot_bytes);
  if (is_cold && knobs.uring && read_by_uring(with, {file, chunks, range, queue}, knobs.uring, lane, counts, progress))
    return;
  const auto read = is_cold ? &FileReader::read_cold : &FileReader::read_aligned;
  const auto fill = [&](std::byte* slot, Chunk chunk) {
    const auto [offset, bytes] = range(chunk);
    (file.*read)(slot, offset, bytes, counts);
  };
  run_ring(with, lane, {chunks, fill, queue}, knobs, Towards::gpu, progress);
}

}  // namespace

void read_to_gpu(const Resources& with, const FileReader& file, std::span<const FilePiece> wanted, const CopyLane& lane,
                 ReadCounts& counts, Progress& progress) {
  auto [cached, cold] = by_state(with, file, wanted, progress);
  const auto read = [&](std::vector<FilePiece> pieces, StagedWork work) {
    if (pieces.empty()) return;
    const auto& knobs = with.options.of(work, total_bytes(wanted));
    const bool is_cold = work == StagedWork::read_cold;
    const auto plainly = [&] { read_plainly(with, file, pieces, lane, counts, progress); };
    if (knobs.plain) return plainly();
    if (is_cold && knobs.cufile && read_by_cufile(with, file, pieces, knobs, lane, counts, progress)) return;
    if (!is_cold && knobs.mapped) pieces = read_mapped(with, file, pieces, knobs, lane, counts, progress);
    if (pieces.empty()) return;
    staged_or_plain(
        with, "read", progress, [&] { read_staged(with, file, pieces, knobs, is_cold, lane, counts, progress); },
        plainly);
  };
  read(std::move(cold), StagedWork::read_cold);
  read(std::move(cached), StagedWork::read_cached);
}

void read_to_host(const Resources& with, const FileReader& file, std::span<const FilePiece> wanted, ReadCounts& counts,
                  Progress& progress) {
  const auto& knobs = with.options.of(MethodId::host, total_bytes(wanted));
  const auto pieces = in_order(wanted, knobs.chunk);
  share_out(with.movers, pieces.size(), knobs.threads, progress, [&](u64 i) {
    file.read(static_cast<std::byte*>(pieces[i].dst), pieces[i].offset, pieces[i].bytes, counts);
    progress.add(pieces[i].bytes);
  });
}

}  // namespace linkscope
