// Files that the GPU copies from the page cache: mapped and registered with the driver, window by window.
#pragma once
#include <span>
#include <vector>

#include "transfer/files.hpp"

namespace linkscope {

/// Copies pieces that are in the page cache, and returns when they are there. Several threads have one window of
/// `chunk` bytes each, so that windows are registered while others are copied; all windows together have at most the
/// arena's bytes. Returns the pieces that it leaves to the staged way: those below 64 KiB, windows that lack a page after
/// all, and what was not copied when the kernel or the driver refused a window; that reason is among the fallbacks.
/// Throws Cancelled, after the windows that were begun.
[[nodiscard]] std::vector<FilePiece> read_mapped(const Resources&, const FileReader&, std::span<const FilePiece>,
                                                 const Knobs&, const CopyLane&, ReadCounts&, Progress&);

}  // namespace linkscope
