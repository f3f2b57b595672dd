// Memory that the processes of a program share: each exports its regions, opens those of others that its actors use, and
// takes its turns in the life of memory that calls allocate.
#pragma once
#include <string_view>

#include "gpu/devices.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

/// The GPU that holds a region, or for host memory one whose context pins it: the first that uses it, or any. Null: no GPU
/// uses shared memory, no driver knows the memory, or there is no GPU.
[[nodiscard]] Device* device_for(Devices&, const Program&, u32 region);

/// Shares the regions of this process, which exist, and opens the others' that its actors use. Each process and GPU that
/// opened memory has then written a word that the owner has seen. Throws Error{unsupported} if memory cannot be shared.
void share_memory(CudaSession&, Devices&);
/// Closes the others' memory, and waits until they have closed this process's.
void close_memory_of_others(CudaSession&) noexcept;

/// Prepares all allocations of a shared region for a phase: the process that owns them and the one that opens them take
/// turns.
void bring_shared_to(CudaSession&, u32 region, std::string_view phase);

}  // namespace linkscope
