// Files that cuFile moves between a disk and memory of a GPU, past the host.
#pragma once
#include <span>

#include "transfer/files.hpp"
#include "transfer/saves.hpp"

namespace linkscope {

/// Moves all pieces after the lane's earlier work, and returns when they are there. Returns false, with the reason among
/// the fallbacks, if cuFile cannot: then counts and progress are as before. Throws Cancelled.
[[nodiscard]] bool read_by_cufile(const Resources&, const FileReader&, std::span<const FilePiece>, const Knobs&,
                                  const CopyLane&, ReadCounts&, Progress&);
/// Likewise. Parts of the host, and the end of a part within a page, are written by the system's own calls.
[[nodiscard]] bool write_by_cufile(const Resources&, const FileWriter&, std::span<const FilePart>, const Knobs&,
                                   const CopyLane&, WriteCounts&, Progress&);

}  // namespace linkscope
