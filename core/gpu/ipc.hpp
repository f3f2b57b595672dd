// GPU memory that two processes share by an IPC handle.
#pragma once
#include "gpu/device.hpp"

namespace linkscope {

/// What another process needs to open memory of this one.
[[nodiscard]] CUipcMemHandle ipc_handle(const Driver&, CUdeviceptr);

/// Owns what a GPU's context opened. The driver maps the memory only for the GPU whose context is current: on H200,
/// copies by another GPU went through the host, and its kernels faulted.
class IpcOpened {
 public:
  /// `by` is the GPU that has the memory, or a peer of it. It may open a handle once.
  IpcOpened(const Driver&, const Device& by, const CUipcMemHandle&);
  ~IpcOpened();  // without reporting errors
  IpcOpened(const IpcOpened&) = delete;
  IpcOpened& operator=(const IpcOpened&) = delete;

  [[nodiscard]] CUdeviceptr address() const { return address_; }
  void close();

 private:
  const Driver& driver_;
  const Device& by_;
  CUdeviceptr address_ = 0;
};

}  // namespace linkscope
