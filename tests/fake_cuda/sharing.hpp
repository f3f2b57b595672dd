// Files that hold GPU memory, so that processes can share it.
#pragma once
#include <cuda.h>

#include <optional>

namespace fake {

/// Creates a file without a name for a GPU's memory, with a label that names the GPU after it. Returns -1 on failure.
/// The file is sparse.
[[nodiscard]] int make_backing(unsigned long long bytes, CUdevice);
/// The label of a file whose descriptor another process sent; nothing for any other file.
struct Backing {
  unsigned long long bytes = 0;
  CUdevice device = 0;
};
[[nodiscard]] std::optional<Backing> backing_of(int descriptor);
/// Maps the file at a reserved address, or at any address (0). Returns null on failure. `opened`: from another process.
[[nodiscard]] void* map_backing(unsigned long long at, unsigned long long bytes, int descriptor, bool opened);

/// How many memories of other processes a device's contexts have open.
[[nodiscard]] std::size_t openings_by(CUdevice);

}  // namespace fake
