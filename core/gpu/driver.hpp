// The CUDA driver, loaded at run time: one table of symbols and literal versions. Each entry is fetched with exactly
// that version, because signatures changed between 12.x and 13. An absent entry is a stated reason, never a crash.
#pragma once
#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>
#include <vector>

namespace linkscope {

// Symbols without which the driver cannot be used at all …
#define LINKSCOPE_DRIVER_CORE(X)      \
  X(cuDeviceGetCount, 2000)           \
  X(cuDeviceGet, 2000)                \
  X(cuDeviceGetName, 2000)            \
  X(cuDeviceGetUuid, 11040)           \
  X(cuDeviceTotalMem, 3020)           \
  X(cuDeviceGetAttribute, 2000)       \
  X(cuDeviceGetPCIBusId, 4010)        \
  X(cuDevicePrimaryCtxRetain, 7000)   \
  X(cuDevicePrimaryCtxRelease, 11000) \
  X(cuCtxGetCurrent, 4000)            \
  X(cuCtxSetCurrent, 4000)            \
  X(cuMemAlloc, 3020)                 \
  X(cuMemFree, 3020)                  \
  X(cuMemHostAlloc, 2020)             \
  X(cuMemFreeHost, 2000)              \
  X(cuMemHostGetDevicePointer, 3020)  \
  X(cuMemcpyHtoDAsync, 3020)          \
  X(cuMemcpyDtoHAsync, 3020)          \
  X(cuMemcpyDtoDAsync, 3020)          \
  X(cuMemcpyDtoH, 3020)               \
  X(cuMemcpyAsync, 4000)              \
  X(cuMemsetD8Async, 3020)            \
  X(cuStreamCreate, 2000)             \
  X(cuStreamDestroy, 4000)            \
  X(cuStreamSynchronize, 2000)        \
  X(cuEventCreate, 2000)              \
  X(cuEventDestroy, 4000)             \
  X(cuEventRecord, 2000)              \
  X(cuEventElapsedTime, 2000)         \
  X(cuModuleLoadData, 2000)           \
  X(cuModuleUnload, 2000)             \
  X(cuModuleGetFunction, 2000)        \
  X(cuLaunchKernel, 4000)             \
  X(cuGetErrorName, 6000)             \
  X(cuGetErrorString, 6000)

// … and symbols that some operations need.
#define LINKSCOPE_DRIVER_OPTIONAL(X)          \
  X(cuDeviceCanAccessPeer, 4000)              \
  X(cuDeviceGetP2PAttribute, 8000)            \
  X(cuCtxEnablePeerAccess, 4000)              \
  X(cuCtxDisablePeerAccess, 4000)             \
  X(cuMemcpyPeerAsync, 4000)                  \
  X(cuMemHostRegister, 6050)                  \
  X(cuMemHostUnregister, 4000)                \
  X(cuMemGetInfo, 3020)                       \
  X(cuMemAllocManaged, 6000)                  \
  X(cuMemPrefetchAsync, 12020)                \
  X(cuMemAdvise, 12020)                       \
  X(cuMemPrefetchBatchAsync, 13000)           \
  X(cuMemDiscardBatchAsync, 13000)            \
  X(cuMemDiscardAndPrefetchBatchAsync, 13000) \
  X(cuFuncSetAttribute, 9000)                 \
  X(cuCtxGetStreamPriorityRange, 5050)        \
  X(cuStreamCreateWithPriority, 5050)         \
  X(cuStreamWaitValue32, 11070)               \
  X(cuStreamWaitEvent, 3020)                  \
  X(cuMemcpy2DAsync, 3020)                    \
  X(cuMemcpy3DAsync, 3020)                    \
  X(cuMemcpyBatchAsync, 13000)                \
  X(cuCtxSynchronize, 2000)                   \
  X(cuCtxGetDevice, 2000)                     \
  X(cuPointerGetAttributes, 7000)             \
  X(cuStreamGetCtx, 9020)                     \
  X(cuStreamQuery, 2000)                      \
  X(cuStreamIsCapturing, 10000)               \
  X(cuThreadExchangeStreamCaptureMode, 10010) \
  X(cuEventQuery, 2000)                       \
  X(cuEventSynchronize, 2000)                 \
  X(cuGraphCreate, 10000)                     \
  X(cuGraphAddMemcpyNode, 10000)              \
  X(cuGraphAddKernelNode, 12000)              \
  X(cuGraphInstantiateWithFlags, 11040)       \
  X(cuGraphExecMemcpyNodeSetParams, 10020)    \
  X(cuGraphUpload, 11010)                     \
  X(cuGraphLaunch, 10000)                     \
  X(cuGraphExecDestroy, 10000)                \
  X(cuGraphDestroy, 10000)                    \
  X(cuMemAllocAsync, 11020)                   \
  X(cuMemFreeAsync, 11020)                    \
  X(cuDeviceGetDefaultMemPool, 11020)         \
  X(cuMemPoolSetAttribute, 11020)             \
  X(cuMemPoolSetAccess, 11020)                \
  X(cuMemPoolTrimTo, 11020)                   \
  X(cuMemGetAllocationGranularity, 10020)     \
  X(cuMemCreate, 10020)                       \
  X(cuMemRelease, 10020)                      \
  X(cuMemAddressReserve, 10020)               \
  X(cuMemAddressFree, 10020)                  \
  X(cuMemMap, 10020)                          \
  X(cuMemUnmap, 10020)                        \
  X(cuMemSetAccess, 10020)                    \
  X(cuMemExportToShareableHandle, 10020)      \
  X(cuMemImportFromShareableHandle, 10020)    \
  X(cuIpcGetMemHandle, 4010)                  \
  X(cuIpcOpenMemHandle, 11000)                \
  X(cuIpcCloseMemHandle, 4010)                \
  X(cuDeviceGetDevResource, 12040)            \
  X(cuDevSmResourceSplitByCount, 12040)       \
  X(cuDevResourceGenerateDesc, 12040)         \
  X(cuGreenCtxCreate, 12040)                  \
  X(cuGreenCtxDestroy, 12040)                 \
  X(cuGreenCtxStreamCreate, 12050)

class Driver {
 public:
  /// Loads libcuda.so.1 and initializes it. Never throws: `why_not()` gives the reason.
  Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] bool usable() const { return why_not_.empty(); }
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] int version() const { return version_; }  // 13000: CUDA 13.0; 0: no driver
  [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }
  /// "" or why an operation that needs `symbol` cannot run.
  [[nodiscard]] std::string why_no(const std::string& symbol) const;

  /// Throws Error with the call, the driver's text for the status, and whether this process is lost.
  void check(CUresult status, const char* call) const;

#define LINKSCOPE_MEMBER(name, version) PFN_##name##_v##version name = nullptr;
  LINKSCOPE_DRIVER_CORE(LINKSCOPE_MEMBER)
  LINKSCOPE_DRIVER_OPTIONAL(LINKSCOPE_MEMBER)
#undef LINKSCOPE_MEMBER

 private:
  void load();
  int version_ = 0;
  std::string why_not_;
  std::vector<std::string> missing_;
};

/// `call(driver, cuMemAlloc, &p, n)`: calls and checks the status.
#define LINKSCOPE_CU(driver, name, ...) (driver).check((driver).name(__VA_ARGS__), #name)

}  // namespace linkscope
