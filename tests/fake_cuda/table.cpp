// The symbols that cuGetProcAddress finds, with first version and function, and the three symbols that dlsym finds.
#include <cuda.h>
#include <cudaTypedefs.h>

#include <algorithm>
#include <cstring>

#include "calls.hpp"
#include "faults.hpp"
#include "settings.hpp"

namespace fake {
namespace {

template <std::size_t n>
struct Name {
  char text[n];
  constexpr Name(const char (&from)[n]) { std::copy_n(from, n, text); }
};

/// An exported call: it requires initialization, is counted, and returns the sticky error, if any.
template <Name name, auto function>
struct Call;
template <Name name, class... A, CUresult (*function)(A...)>
struct Call<name, function> {
  static CUresult call(A... arguments) {
    if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
    if (const CUresult status = enter(name.text); status != CUDA_SUCCESS) return status;
    return function(arguments...);
  }
};

struct Row {
  const char* symbol;
  int version;
  void* function;
};

#define ROW(symbol, version, function) \
  {#symbol, version, reinterpret_cast<void*>(static_cast<PFN_##symbol##_v##version>(&Call<#symbol, function>::call))}
// A call that needs neither initialization nor a working GPU.
#define PLAIN_ROW(symbol, version, function) \
  {#symbol, version, reinterpret_cast<void*>(static_cast<PFN_##symbol##_v##version>(&(function)))}

const Row rows[] = {
    PLAIN_ROW(cuInit, 2000, init),
    PLAIN_ROW(cuDriverGetVersion, 2020, driver_get_version),
    PLAIN_ROW(cuGetErrorName, 6000, get_error_name),
    PLAIN_ROW(cuGetErrorString, 6000, get_error_string),
    PLAIN_ROW(cuGetProcAddress, 12000, get_proc_address),
    ROW(cuDeviceGetCount, 2000, device_get_count),
    ROW(cuDeviceGet, 2000, device_get),
    ROW(cuDeviceGetName, 2000, device_get_name),
    ROW(cuDeviceGetUuid, 9020, device_get_uuid),
    ROW(cuDeviceGetUuid, 11040, device_get_uuid),
    ROW(cuDeviceTotalMem, 3020, device_total_mem),
    ROW(cuDeviceGetAttribute, 2000, device_get_attribute),
    ROW(cuDeviceGetPCIBusId, 4010, device_get_pci_bus_id),
    ROW(cuDeviceCanAccessPeer, 4000, device_can_access_peer),
    ROW(cuDeviceGetP2PAttribute, 8000, device_get_p2p_attribute),
    ROW(cuDevicePrimaryCtxRetain, 7000, device_primary_ctx_retain),
    ROW(cuDevicePrimaryCtxRelease, 11000, device_primary_ctx_release),
    ROW(cuCtxCreate, 12050, ctx_create),
    ROW(cuCtxDestroy, 4000, ctx_destroy),
    ROW(cuCtxSetCurrent, 4000, ctx_set_current),
    ROW(cuCtxGetCurrent, 4000, ctx_get_current),
    ROW(cuCtxGetDevice, 2000, ctx_get_device),
    ROW(cuCtxGetDevice, 13000, ctx_get_device_of),
    ROW(cuCtxEnablePeerAccess, 4000, ctx_enable_peer_access),
    ROW(cuCtxDisablePeerAccess, 4000, ctx_disable_peer_access),
    ROW(cuCtxSynchronize, 2000, ctx_synchronize),
    ROW(cuCtxSynchronize, 13000, ctx_synchronize_of),
    ROW(cuMemGetInfo, 3020, mem_get_info),
    ROW(cuMemAlloc, 3020, mem_alloc),
    ROW(cuMemFree, 3020, mem_free),
    ROW(cuMemAllocManaged, 6000, mem_alloc_managed),
    ROW(cuMemPrefetchAsync, 12020, mem_prefetch_async),
    ROW(cuMemPrefetchBatchAsync, 13000, mem_prefetch_batch_async),
    ROW(cuMemDiscardBatchAsync, 13000, mem_discard_batch_async),
    ROW(cuMemDiscardAndPrefetchBatchAsync, 13000, mem_discard_and_prefetch_batch_async),
    ROW(cuMemAdvise, 12020, mem_advise),
    ROW(cuMemHostAlloc, 2020, mem_host_alloc),
    ROW(cuMemFreeHost, 2000, mem_free_host),
    ROW(cuMemHostRegister, 6050, mem_host_register),
    ROW(cuMemHostUnregister, 4000, mem_host_unregister),
    ROW(cuMemHostGetDevicePointer, 3020, mem_host_get_device_pointer),
    ROW(cuPointerGetAttributes, 7000, pointer_get_attributes),
    ROW(cuStreamBeginCapture, 10010, stream_begin_capture),
    ROW(cuStreamEndCapture, 10000, stream_end_capture),
    ROW(cuStreamIsCapturing, 10000, stream_is_capturing),
    ROW(cuThreadExchangeStreamCaptureMode, 10010, thread_exchange_stream_capture_mode),
    ROW(cuStreamGetCtx, 9020, stream_get_ctx),
    ROW(cuMemcpyAsync, 4000, memcpy_async),
    ROW(cuMemcpyHtoDAsync, 3020, memcpy_htod_async),
    ROW(cuMemcpyDtoHAsync, 3020, memcpy_dtoh_async),
    ROW(cuMemcpyDtoDAsync, 3020, memcpy_dtod_async),
    ROW(cuMemcpyPeerAsync, 4000, memcpy_peer_async),
    ROW(cuMemcpy2DAsync, 3020, memcpy_2d_async),
    ROW(cuMemcpy3DAsync, 3020, memcpy_3d_async),
    ROW(cuMemcpyBatchAsync, 12080, memcpy_batch_async_of_12_8),
    ROW(cuMemcpyBatchAsync, 13000, memcpy_batch_async),
    ROW(cuGraphCreate, 10000, graph_create),
    ROW(cuGraphDestroy, 10000, graph_destroy),
    ROW(cuGraphAddMemcpyNode, 10000, graph_add_memcpy_node),
    ROW(cuGraphInstantiateWithFlags, 11040, graph_instantiate_with_flags),
    ROW(cuGraphExecMemcpyNodeSetParams, 10020, graph_exec_memcpy_node_set_params),
    ROW(cuGraphExecDestroy, 10000, graph_exec_destroy),
    ROW(cuGraphUpload, 11010, graph_upload),
    ROW(cuGraphLaunch, 10000, graph_launch),
    ROW(cuMemcpyHtoD, 3020, memcpy_htod),
    ROW(cuMemcpyDtoH, 3020, memcpy_dtoh),
    ROW(cuMemsetD8Async, 3020, memset_d8_async),
    ROW(cuCtxGetStreamPriorityRange, 5050, ctx_get_stream_priority_range),
    ROW(cuStreamCreate, 2000, stream_create),
    ROW(cuStreamCreateWithPriority, 5050, stream_create_with_priority),
    ROW(cuStreamDestroy, 4000, stream_destroy),
    ROW(cuStreamSynchronize, 2000, stream_synchronize),
    ROW(cuStreamQuery, 2000, stream_query),
    ROW(cuStreamWaitEvent, 3020, stream_wait_event),
    ROW(cuStreamWaitValue32, 11070, stream_wait_value_32),
    ROW(cuEventCreate, 2000, event_create),
    ROW(cuEventDestroy, 4000, event_destroy),
    ROW(cuEventRecord, 2000, event_record),
    ROW(cuEventQuery, 2000, event_query),
    ROW(cuEventSynchronize, 2000, event_synchronize),
    ROW(cuEventElapsedTime, 2000, event_elapsed_time),
    ROW(cuEventElapsedTime, 12080, event_elapsed_time),
    ROW(cuModuleLoadData, 2000, module_load_data),
    ROW(cuModuleUnload, 2000, module_unload),
    ROW(cuModuleGetFunction, 2000, module_get_function),
    ROW(cuFuncSetAttribute, 9000, func_set_attribute),
    ROW(cuLaunchKernel, 4000, launch_kernel),
    ROW(cuGraphAddKernelNode, 12000, graph_add_kernel_node),
    ROW(cuMemAllocAsync, 11020, mem_alloc_async),
    ROW(cuMemFreeAsync, 11020, mem_free_async),
    ROW(cuDeviceGetDefaultMemPool, 11020, device_get_default_mem_pool),
    ROW(cuMemPoolSetAttribute, 11020, mem_pool_set_attribute),
    ROW(cuMemPoolSetAccess, 11020, mem_pool_set_access),
    ROW(cuMemPoolTrimTo, 11020, mem_pool_trim_to),
    ROW(cuMemGetAllocationGranularity, 10020, mem_get_allocation_granularity),
    ROW(cuMemCreate, 10020, mem_create),
    ROW(cuMemRelease, 10020, mem_release),
    ROW(cuMemAddressReserve, 10020, mem_address_reserve),
    ROW(cuMemAddressFree, 10020, mem_address_free),
    ROW(cuMemMap, 10020, mem_map),
    ROW(cuMemUnmap, 10020, mem_unmap),
    ROW(cuMemSetAccess, 10020, mem_set_access),
    ROW(cuMemExportToShareableHandle, 10020, mem_export_to_shareable_handle),
    ROW(cuMemImportFromShareableHandle, 10020, mem_import_from_shareable_handle),
    ROW(cuIpcGetMemHandle, 4010, ipc_get_mem_handle),
    ROW(cuIpcOpenMemHandle, 11000, ipc_open_mem_handle),
    ROW(cuIpcCloseMemHandle, 4010, ipc_close_mem_handle),
    ROW(cuDeviceGetDevResource, 12040, device_get_dev_resource),
    ROW(cuDevSmResourceSplitByCount, 12040, dev_sm_resource_split_by_count),
    ROW(cuDevResourceGenerateDesc, 12040, dev_resource_generate_desc),
    ROW(cuGreenCtxCreate, 12040, green_ctx_create),
    ROW(cuGreenCtxDestroy, 12040, green_ctx_destroy),
    ROW(cuGreenCtxStreamCreate, 12050, green_ctx_stream_create),
};
#undef ROW
#undef PLAIN_ROW

/// The newest variant that this driver has and the caller's version allows.
const Row* newest(const char* symbol, int version, bool& known) {
  const Row* best = nullptr;
  for (const auto& row : rows) {
    if (std::strcmp(row.symbol, symbol) != 0 || row.version > settings().version) continue;
    known = true;
    if (row.version <= version && (!best || row.version > best->version)) best = &row;
  }
  return best;
}

}  // namespace

CUresult get_proc_address(const char* symbol, void** found, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* result) {
  constexpr cuuint64_t known_flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!symbol || !found || version > settings().version || (flags & ~known_flags)) return CUDA_ERROR_INVALID_VALUE;
  bool known = false;
  const Row* row = settings().missing.contains(symbol) ? nullptr : newest(symbol, version, known);
  *found = row ? row->function : nullptr;
  if (result)
    *result = row     ? CU_GET_PROC_ADDRESS_SUCCESS
              : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

}  // namespace fake

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT CUresult cuInit(unsigned flags) {
  const CUresult status = fake::enter("cuInit");
  return status == CUDA_SUCCESS ? fake::init(flags) : status;
}
EXPORT CUresult cuDriverGetVersion(int* version) { return fake::driver_get_version(version); }
EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** found, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult* result) {
  return fake::get_proc_address(symbol, found, version, flags, result);
}
