// Copies through a ring of pinned memory with one launch: a kernel moves chunks at one side, CPU threads at the other.
// They exchange words in pinned memory. A call of the driver for each chunk would take longer than a short chunk.
#pragma once
#include "transfer/methods.hpp"
#include "transfer/ring.hpp"

namespace linkscope {

/// One range on a GPU, and one in pageable memory of this process.
struct PumpedCopy {
  CUdeviceptr device = 0;
  std::byte* host = nullptr;  // towards the GPU only read
  u64 bytes = 0;
};

/// Towards the GPU it returns when the ring holds the last chunk, towards the host when all data is there. If the GPU or
/// the threads give up, it throws, and the kernel ends; the destination then holds a part of the data.
void run_pump(const Resources&, const CopyLane&, const PumpedCopy&, const Knobs&, Towards, Progress&);

}  // namespace linkscope
