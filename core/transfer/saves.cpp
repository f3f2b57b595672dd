#include "transfer/saves.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "transfer/direct_files.hpp"
#include "transfer/disk_writes.hpp"
#include "transfer/staged.hpp"

namespace linkscope {
namespace {

/// Ranges of the file that begin at multiples of `most`, so that all but the first and last are whole granules.
std::vector<Chunk> chunks_of(std::span<const FilePart> parts, u64 most) {
  std::vector<Chunk> chunks;
  const u64 end = parts.back().offset + parts.back().bytes;
  for (u64 at = parts.front().offset; at < end;) {
    const u64 stop = std::min(end, at / most * most + most);
    chunks.push_back({at, 0, stop - at});
    at = stop;
  }
  return chunks;
}

/// Calls `use` with each part of a chunk: its offset in the file, its source and its bytes.
template <class Use>
void each_part(std::span<const FilePart> parts, Chunk chunk, bool on_gpu, Use use) {
  const u64 end = chunk.at + chunk.bytes;
  auto part = std::upper_bound(parts.begin(), parts.end(), chunk.at,
                               [](u64 at, const FilePart& one) { return at < one.offset + one.bytes; });
  for (; part != parts.end() && part->offset < end; ++part) {
    const u64 from = std::max(chunk.at, part->offset), to = std::min(end, part->offset + part->bytes);
    if (part->on_gpu == on_gpu && from < to) use(from, part->src + (from - part->offset), to - from);
  }
}

/// One thread copies to ordinary memory by the driver, and writes it.
void write_plainly(const Resources& with, const FileWriter& file, std::span<const FilePart> parts, u64 most,
                   const CopyLane& lane, WriteCounts& counts, Progress& progress) {
  const CurrentContext current{with.driver, lane.context};
  std::vector<std::byte> buffer(most);
  for (const auto& part : parts)
    for (u64 at = 0; at < part.bytes; at += most) {
      if (progress.cancelled) throw Cancelled{};
      const u64 bytes = std::min(most, part.bytes - at);
      const std::byte* from = part.src + at;
      if (part.on_gpu) {
        LINKSCOPE_CU(with.driver, cuMemcpyDtoHAsync, buffer.data(), reinterpret_cast<CUdeviceptr>(from), bytes,
                     lane.stream);
        LINKSCOPE_CU(with.driver, cuStreamSynchronize, lane.stream);
        from = buffer.data();
      }
      file.write(from, part.offset + at, bytes, counts);
      progress.add(bytes);
    }
}

}  // namespace

void write_from_gpu(const Resources& with, const FileWriter& file, std::span<const FilePart> parts,
                    const CopyLane& lane, WriteCounts& counts, Progress& progress) {
  const auto& knobs = with.options.of(StagedWork::write_file, parts.back().offset + parts.back().bytes);
  if (knobs.cufile && write_by_cufile(with, file, parts, knobs, lane, counts, progress)) return;
  const u64 most = std::max(file_granule, std::min(knobs.chunk, with.arena.slot_bytes()) / file_granule * file_granule);
  const auto plainly = [&] { write_plainly(with, file, parts, most, lane, counts, progress); };
  if (knobs.plain) return plainly();
  // A byte of the file is as far from a granule in its slot as in the file.
  const auto place = [](std::byte* slot, Chunk chunk, u64 offset) {
    return slot + (offset - chunk.at / file_granule * file_granule);
  };
  RingWork work;
  work.chunks = chunks_of(parts, most);
  work.queue = [&](std::byte* slot, Chunk chunk) {
    each_part(parts, chunk, true, [&](u64 offset, const std::byte* src, u64 bytes) {
      LINKSCOPE_CU(with.driver, cuMemcpyDtoHAsync, place(slot, chunk, offset), reinterpret_cast<CUdeviceptr>(src),
                   bytes, lane.stream);
    });
  };
  const auto fill = [&](std::byte* slot, Chunk chunk) {
    each_part(parts, chunk, false, [&](u64 offset, const std::byte* src, u64 bytes) {
      std::memcpy(place(slot, chunk, offset), src, bytes);
    });
  };
  const auto start_in = [&](std::byte* slot, Chunk chunk) { return place(slot, chunk, chunk.at); };
  work.by_cpu = [&](std::byte* slot, Chunk chunk) {
    fill(slot, chunk);
    file.write(start_in(slot, chunk), chunk.at, chunk.bytes, counts);
  };
  const auto staged = [&] {
    const DiskWrites writes{file, work.chunks, start_in, work.queue, fill};
    if (knobs.uring && write_by_uring(with, writes, knobs.uring, lane, counts, progress)) return;
    run_ring(with, lane, work, knobs, Towards::host, progress);
  };
  staged_or_plain(with, "save", progress, staged, plainly);
}

void write_from_host(const Resources& with, const FileWriter& file, std::span<const FilePart> parts,
                     WriteCounts& counts, Progress& progress) {
  const auto& knobs = with.options.of(MethodId::host, parts.back().offset + parts.back().bytes);
  const auto chunks = chunks_of(parts, std::max(knobs.chunk, file_granule));
  share_out(with.movers, chunks.size(), knobs.threads, progress, [&](u64 i) {
    each_part(parts, chunks[i], false,
              [&](u64 offset, const std::byte* src, u64 bytes) { file.write(src, offset, bytes, counts); });
    progress.add(chunks[i].bytes);
  });
}

}  // namespace linkscope
