// The GPUs as this library uses them: primary contexts, opened at first use, and the lane of a stream.
#pragma once
#include <mutex>
#include <optional>

#include "gpu/devices.hpp"
#include "transfer/arena.hpp"
#include "transfer/device_code.hpp"
#include "transfer/location.hpp"

namespace linkscope {

/// What one access of a thread moves, and one of TMA. Both ends of a copy have the same offset within it.
constexpr u64 vector_bytes = 16;
/// Of the kernels that move bytes for the host.
constexpr unsigned threads_of_block = 1024;

class Gpus {
 public:
  explicit Gpus(const Driver& driver) : driver_{driver}, devices_{driver, transfer_code()} {}

  /// Where work on a stream runs. The legacy stream is that of the current context, or of the GPU that has the memory
  /// if no context is current; `stream_of_memory` is that of the GPU that has the memory,
  /// if one has it. None if the stream is of a context that is not a GPU's primary one, if its order depends
  /// on the calling thread, or if no GPU is named at all. Throws Error{usage} if the stream does not exist.
  [[nodiscard]] std::optional<CopyLane> lane_of(CUstream, CUdevice memory_on);
  /// A context in which pinned memory is freed; null if no GPU was used.
  [[nodiscard]] CUcontext any_context();
  /// The same, of a GPU that is opened now if none was used. Throws Error{failed} if no GPU admits this process.
  [[nodiscard]] CUcontext made_context();
  /// Those of all GPUs that copies have used.
  [[nodiscard]] std::vector<CUcontext> contexts();
  [[nodiscard]] Device& at(u32 index);
  /// The index of a GPU by the driver's number; none if the driver does not show it.
  [[nodiscard]] std::optional<u32> index_of(CUdevice) const;
  [[nodiscard]] const std::vector<DeviceFacts>& facts() const { return devices_.facts(); }
  /// The kernel that moves scattered blocks. Throws Error{failed} if this build has no code for the GPU.
  [[nodiscard]] CUfunction block_kernel(u32 index);
  /// The kernel of a pump (pump.hpp), likewise.
  [[nodiscard]] CUfunction pump_kernel(u32 index);
  /// The kernels that copy between memories of GPUs, likewise.
  [[nodiscard]] CUfunction copy_kernel(u32 index, bool by_tma);

 private:
  const Driver& driver_;
  std::mutex mutex_;
  Devices devices_;
  std::vector<std::pair<CUcontext, u32>> known_;  // primary contexts
};

}  // namespace linkscope
