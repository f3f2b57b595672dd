// Chunks of a file that are not in the page cache: many reads in flight by io_uring, which one thread starts and ends.
#pragma once
#include <functional>
#include <span>

#include "host/file_reader.hpp"
#include "transfer/methods.hpp"
#include "transfer/ring.hpp"

namespace linkscope {

/// The range of the file that fills a slot with a chunk. It begins at a granule.
struct FileRange {
  u64 offset = 0, bytes = 0;
};

struct DiskReads {
  const FileReader& file;
  std::span<const Chunk> chunks;
  std::function<FileRange(Chunk)> range_of;
  std::function<void(std::byte* slot, Chunk)> queue;  // queues the GPU's part on the lane
};

/// Returns when the GPU's part of every chunk is queued. At most `in_flight` reads are under way. Returns false with the reason in the counts, and has read
/// nothing, if the kernel refuses io_uring or the file system O_DIRECT: then threads must read.
[[nodiscard]] bool read_by_uring(const Resources&, const DiskReads&, u32 in_flight, const CopyLane&, ReadCounts&,
                                 Progress&);

}  // namespace linkscope
