// Chunks of a file that one GPU fills: many writes past the page cache in flight by io_uring, which one thread starts and
// ends.
#pragma once
#include <functional>
#include <span>

#include "transfer/ring.hpp"
#include "transfer/saves.hpp"

namespace linkscope {

struct DiskWrites {
  const FileWriter& file;
  std::span<const Chunk> chunks;                               // `at`: the offset in the file
  std::function<std::byte*(std::byte* slot, Chunk)> start_in;  // where the chunk lies in a slot
  std::function<void(std::byte* slot, Chunk)> queue;           // queues the GPU's part on the lane
  std::function<void(std::byte* slot, Chunk)> fill;            // copies the host's part
};

/// Returns when all is written. At most `in_flight` slots are in use. Returns false with the reason in the counts, and has
/// written nothing, if the kernel refuses io_uring, the file system O_DIRECT, or the file has no disk: then threads must
/// write.
[[nodiscard]] bool write_by_uring(const Resources&, const DiskWrites&, u32 in_flight, const CopyLane&, WriteCounts&,
                                  Progress&);

}  // namespace linkscope
