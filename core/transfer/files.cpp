#include "transfer/files.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "transfer/disk_reads.hpp"
#include "transfer/staged.hpp"

namespace linkscope {
namespace {

constexpr u64 granule = FileReader::granule;

u64 granule_before(u64 offset) { return offset / granule * granule; }

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
    if (chunks.empty() || end < furthest || granule_before(end - 1) + granule - start > slot_bytes) {
      start = granule_before(pieces[i].offset);
      chunks.push_back({i, 0, 0});
    }
    furthest = end;
    ++chunks.back().count;
    chunks.back().bytes += pieces[i].bytes;
  }
  return chunks;
}

}  // namespace

void read_to_gpu(const Resources& with, const FileReader& file, std::span<const FilePiece> wanted, const CopyLane& lane,
                 ReadCounts& counts, Progress& progress) {
  const auto& knobs = with.options.of(MethodId::ring_to_gpu, total_bytes(wanted));
  const u64 slot_bytes = std::min(knobs.chunk, with.arena.slot_bytes());
  // A piece of a large tensor begins anywhere in a granule, and fills a slot with its first and last granule.
  const auto pieces = in_order(wanted, slot_bytes - granule);
  const auto range_of = [&](Chunk chunk) {
    const auto& last = pieces[chunk.at + chunk.count - 1];
    const u64 start = granule_before(pieces[chunk.at].offset);
    return FileRange{start, last.offset + last.bytes - start};
  };
  const auto queue = [&](std::byte* slot, Chunk chunk) {
    const u64 start = granule_before(pieces[chunk.at].offset);
    for (u64 i = chunk.at; i < chunk.at + chunk.count; ++i)
      LINKSCOPE_CU(with.driver, cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(pieces[i].dst),
                   slot + (pieces[i].offset - start), pieces[i].bytes, lane.stream);
  };
  auto chunks = chunks_of(pieces, slot_bytes);
  const auto first_cached = std::stable_partition(chunks.begin(), chunks.end(), [&](Chunk chunk) {
    const auto [offset, bytes] = range_of(chunk);
    return !file.is_cached(offset, bytes);
  });
  const auto with_threads = [&](auto begin, auto end, auto read) {
    if (begin == end) return;
    const auto fill = [&](std::byte* slot, Chunk chunk) {
      const auto [offset, bytes] = range_of(chunk);
      (file.*read)(slot, offset, bytes, counts);
    };
    run_ring(with, lane, {{begin, end}, fill, queue}, knobs, Towards::gpu, progress);
  };
  if (chunks.begin() != first_cached &&
      !read_by_uring(with, {file, {chunks.begin(), first_cached}, range_of, queue}, lane, counts, progress))
    with_threads(chunks.begin(), first_cached, &FileReader::read_cold);
  with_threads(first_cached, chunks.end(), &FileReader::read_aligned);
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
