#include "gpu/ipc.hpp"

#include <utility>

#include "base/error.hpp"
#include "gpu/context.hpp"

namespace linkscope {

CUipcMemHandle ipc_handle(const Driver& driver, CUdeviceptr address) {
  CUipcMemHandle handle{};
  LINKSCOPE_CU(driver, cuIpcGetMemHandle, &handle, address);
  return handle;
}

IpcOpened::IpcOpened(const Driver& driver, const Device& by, const CUipcMemHandle& handle) : driver_{driver}, by_{by} {
  const CurrentContext current{driver_, by_.context()};
  LINKSCOPE_CU(driver_, cuIpcOpenMemHandle, &address_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

IpcOpened::~IpcOpened() {
  try {
    close();
  } catch (const Error&) {  // the driver is shutting down, or the memory ended with its process
  }
}

void IpcOpened::close() {
  if (!address_) return;
  const CurrentContext current{driver_, by_.context()};
  LINKSCOPE_CU(driver_, cuIpcCloseMemHandle, std::exchange(address_, 0));
}

}  // namespace linkscope
