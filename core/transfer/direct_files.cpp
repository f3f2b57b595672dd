#include "transfer/direct_files.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "transfer/capture.hpp"

namespace linkscope {
namespace {

CUdeviceptr on_gpu(const void* start) { return reinterpret_cast<CUdeviceptr>(start); }

/// The bytes of one call of cuFile: whole pages, so that no two threads write to one.
u64 call_bytes(const Knobs& knobs) { return std::max(knobs.chunk / file_granule * file_granule, file_granule); }

/// Calls move(file, i) for each of `count` ranges by several threads. `bytes_of(i)`: for the progress.
template <class BytesOf, class Move>
bool moved_all(const Resources& with, int descriptor, u64 count, const Knobs& knobs, const CopyLane& lane,
               Progress& progress, BytesOf bytes_of, Move move) {
  std::atomic<u64> moved{0};
  try {
    const Cufile::File file{with.cufile, descriptor};
    {
      const CurrentContext current{with.driver, lane.context};
      const DuringCaptures allowed{with.driver};
      LINKSCOPE_CU(with.driver, cuStreamSynchronize, lane.stream);  // cuFile knows no streams
    }
    share_out(with.movers, count, knobs.threads, progress, [&](u64 i) {
      const CurrentContext current{with.driver, lane.context};
      move(file, i);
      moved += bytes_of(i);
      progress.add(bytes_of(i));
    });
    return true;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::lost) throw;
    progress.done -= moved;
    with.fallbacks.note(std::string{"cufile: "} + error.what());
    return false;
  }
}

/// Parts that one call moves: of a GPU's part, whole pages or its end within a page.
std::vector<FilePart> divided(std::span<const FilePart> parts, u64 most) {
  std::vector<FilePart> calls;
  for (const auto& [offset, bytes, src, is_on_gpu] : parts)
    for (u64 at = 0; at < bytes;) {
      const u64 left = bytes - at, whole = std::min(left, most) / file_granule * file_granule,
                step = is_on_gpu && whole ? whole : std::min(left, most);
      calls.push_back({offset + at, step, src + at, is_on_gpu});
      at += step;
    }
  return calls;
}

void write_end(const Resources& with, const FileWriter& file, const FilePart& end, CUstream stream,
               WriteCounts& counts) {
  std::array<std::byte, file_granule> buffer{};
  LINKSCOPE_CU(with.driver, cuMemcpyDtoHAsync, buffer.data(), on_gpu(end.src), end.bytes, stream);
  LINKSCOPE_CU(with.driver, cuStreamSynchronize, stream);
  file.write(buffer.data(), end.offset, end.bytes, counts);
}

}  // namespace

bool read_by_cufile(const Resources& with, const FileReader& file, std::span<const FilePiece> pieces,
                    const Knobs& knobs, const CopyLane& lane, ReadCounts& counts, Progress& progress) {
  const u64 most = call_bytes(knobs);
  std::vector<FilePiece> calls;
  u64 all = 0;
  for (const auto& [offset, bytes, dst] : pieces)
    for (u64 at = 0; at < bytes; at += most) {
      calls.push_back({offset + at, std::min(most, bytes - at), static_cast<std::byte*>(dst) + at});
      all += calls.back().bytes;
    }
  const auto bytes_of = [&](u64 i) { return calls[i].bytes; };
  if (!moved_all(with, file.direct(), calls.size(), knobs, lane, progress, bytes_of,
                 [&](const Cufile::File& direct, u64 i) {
                   direct.read(on_gpu(calls[i].dst), calls[i].bytes, calls[i].offset);
                 }))
    return false;
  counts.direct += all;
  counts.cufile += all;
  return true;
}

bool write_by_cufile(const Resources& with, const FileWriter& file, std::span<const FilePart> parts, const Knobs& knobs,
                     const CopyLane& lane, WriteCounts& counts, Progress& progress) {
  const auto is_within_page = [](const FilePart& part) { return part.on_gpu && part.offset % file_granule != 0; };
  if (std::any_of(parts.begin(), parts.end(), is_within_page)) {
    with.fallbacks.note("cufile: a GPU's part of the file begins within a page of 4096 bytes");
    return false;
  }
  const auto calls = divided(parts, call_bytes(knobs));
  WriteCounts written;
  const auto bytes_of = [&](u64 i) { return calls[i].bytes; };
  if (!moved_all(with, file.direct(), calls.size(), knobs, lane, progress, bytes_of,
                 [&](const Cufile::File& direct, u64 i) {
                   const auto& call = calls[i];
                   if (!call.on_gpu) return file.write(call.src, call.offset, call.bytes, written);
                   if (call.bytes % file_granule != 0) return write_end(with, file, call, lane.stream, written);
                   direct.write(on_gpu(call.src), call.bytes, call.offset);
                   written.cufile += call.bytes;
                 }))
    return false;
  counts.direct += written.direct + written.cufile;
  counts.buffered += written.buffered;
  counts.cufile += written.cufile;
  return true;
}

}  // namespace linkscope
