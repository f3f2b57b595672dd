// GPU memory that processes share: what it lies in.
#pragma once
#include <cuda.h>

#include <optional>

namespace fake {

/// A file without a name that holds a GPU's memory, and behind it whose it is; -1 where there is none. It is as sparse as
/// address space.
[[nodiscard]] int make_backing(unsigned long long bytes, CUdevice);
/// What a descriptor holds that another process sent; nothing where it is no such file.
struct Backing {
  unsigned long long bytes = 0;
  CUdevice device = 0;
};
[[nodiscard]] std::optional<Backing> backing_of(int descriptor);
/// Maps it, at a reserved address or anywhere (0); null where that fails. `opened`: from another process.
[[nodiscard]] void* map_backing(unsigned long long at, unsigned long long bytes, int descriptor, bool opened);

}  // namespace fake
