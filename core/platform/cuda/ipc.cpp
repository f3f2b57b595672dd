#include "platform/cuda/ipc.hpp"

#include <utility>

namespace linkscope {

IpcOpened::IpcOpened(const Driver& driver, const Device& by, const CUipcMemHandle& handle) : driver_{driver}, by_{by} {
  by_.use();
  LINKSCOPE_CU(driver_, cuIpcOpenMemHandle, &address_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

IpcOpened::~IpcOpened() {
  if (address_ && driver_.cuCtxSetCurrent(by_.context()) == CUDA_SUCCESS) driver_.cuIpcCloseMemHandle(address_);
}

void IpcOpened::close() {
  if (!address_) return;
  by_.use();
  LINKSCOPE_CU(driver_, cuIpcCloseMemHandle, std::exchange(address_, 0));
}

}  // namespace linkscope
