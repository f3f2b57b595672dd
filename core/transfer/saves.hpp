// Memory of GPUs and of the host that goes to a file.
#pragma once
#include <span>

#include "host/file_writer.hpp"
#include "transfer/methods.hpp"

namespace linkscope {

/// Memory that follows the source before it in the file. `stream`: after whose work a GPU's memory is read.
struct FileSource {
  const void* src = nullptr;
  u64 bytes = 0;
  CUstream stream = nullptr;
};

/// A source with its place in the file.
struct FilePart {
  u64 offset = 0, bytes = 0;
  const std::byte* src = nullptr;
  bool on_gpu = false;
};

/// Parts that follow each other, of the lane's GPU and of the host: the GPU copies to pinned slots, io_uring or threads write them.
void write_from_gpu(const Resources&, const FileWriter&, std::span<const FilePart>, const CopyLane&, WriteCounts&,
                    Progress&);
/// Parts of the host only.
void write_from_host(const Resources&, const FileWriter&, std::span<const FilePart>, WriteCounts&, Progress&);

}  // namespace linkscope
