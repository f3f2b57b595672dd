// Ranges of a file that go to memory of a GPU or of the host.
#pragma once
#include <span>

#include "host/file_reader.hpp"
#include "transfer/methods.hpp"

namespace linkscope {

struct FilePiece {
  u64 offset = 0, bytes = 0;
  void* dst = nullptr;
};

/// Reads pieces into pinned slots, from which the lane's GPU copies. Returns when all is queued.
void read_to_gpu(const Resources&, const FileReader&, std::span<const FilePiece>, const CopyLane&, ReadCounts&,
                 Progress&);
/// Reads pieces into host memory.
void read_to_host(const Resources&, const FileReader&, std::span<const FilePiece>, ReadCounts&, Progress&);

}  // namespace linkscope
