// Copies over several GPUs' links: pinned memory to and from one GPU, and between two GPUs through pinned memory.
#pragma once
#include "transfer/methods.hpp"
#include "transfer/paths.hpp"
#include "transfer/ring.hpp"

namespace linkscope {

/// Pinned memory to a GPU and back, over its own link and those of helpers.
[[nodiscard]] bool fits_relay_to_gpu(const Resources&, const PlannedCopy&);
[[nodiscard]] bool fits_relay_to_host(const Resources&, const PlannedCopy&);
void relay_to_gpu(const Resources&, const PlannedCopy&, Progress&);
void relay_to_host(const Resources&, const PlannedCopy&, Progress&);
/// The chunks of such a copy in their order: `chunk` bytes each, then less and less, so that all paths end at about the
/// same time. The last ones have 1 MiB, or `chunk` if that is smaller.
[[nodiscard]] std::vector<Chunk> tapered(u64 bytes, u64 chunk, u64 paths);

/// The knobs of a copy of pageable memory, whose threads are those of one link, with as many for each link that it uses.
/// Four H200s: more threads than leave each chunks of 2 MiB and two slots made copies from a GPU slower.
[[nodiscard]] Knobs for_links(const Resources&, const PlannedCopy&, Knobs, Towards);
/// The chunks of a ring of so many slots over several links, which must stay in a part of the last-level cache: GPUs
/// read them from there. At least 1 MiB, or `chunk` if that is smaller.
[[nodiscard]] u64 chunk_in_cache(u64 chunk, u64 slots, u64 cache_bytes);
/// Pageable memory to a GPU or back through the ring, over the links that the knobs ask for.
void run_ring_over_links(const Resources&, const PlannedCopy&, RingWork&, const Knobs&, Towards, Progress&);

/// One GPU to another that has no peer access. The driver's own copy would wait for each chunk in turn.
[[nodiscard]] bool fits_between_gpus(const Resources&, const PlannedCopy&);
void between_gpus(const Resources&, const PlannedCopy&, Progress&);

}  // namespace linkscope
