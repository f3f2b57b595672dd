// How kernels are executed on this machine: one table of device functions, their arguments, and their checks.
#pragma once
#include <span>

#include "platform/cuda/verification.hpp"

namespace linkscope {

/// A launch on an actor's stream.
struct Launch {
  const CudaSession& session;
  ActorState& state;
  const Kernel& kernel;
  CUfunction code;
  u64 steps;  // dependent steps; otherwise 1

  [[nodiscard]] const Access& access() const { return kernel.traffic.front(); }
  [[nodiscard]] u64 bytes() const { return access().span.bytes; }
  /// Where an access of this iteration begins: in its region, and as an address for the GPU.
  [[nodiscard]] u64 offset() const { return access().span.offset_at(state.iteration); }
  [[nodiscard]] CUdeviceptr address(std::size_t access = 0) const;
  template <class... Arguments>
  void with(Arguments... arguments) const {
    void* pointers[] = {&arguments...};
    queue(pointers);
  }

 private:
  void queue(void** arguments) const;
};

struct KernelExecutor {
  KernelId id;
  /// Whether the row is for this form of the kernel; null: for every form.
  bool (*fits)(const Kernel&);
  const char* function;  // in the kernel's module of device code
  void (*queue)(const Launch&);
  void (*do_on_cpu)(const CudaSession&, ActorState&, const Kernel&, u64 steps);  // null: only GPUs run it
  void (*add_checks)(const CudaSession&, const ActorState&, const Kernel&, Checks&);
};

/// All rows. Rows for some forms of a kernel come before its row for every form.
[[nodiscard]] std::span<const KernelExecutor> kernel_executors();
[[nodiscard]] const KernelExecutor& executor_of(const Kernel&);

/// Where an SM counts its launches of a chase.
[[nodiscard]] inline CUdeviceptr turns_of(const ActorState& state) { return state.result + sizeof(u64); }

}  // namespace linkscope
