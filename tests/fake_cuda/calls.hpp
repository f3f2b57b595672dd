// The driver functions that the fake implements, by file. table.cpp checks each against the type of its version in
// cudaTypedefs.h.
#pragma once
#include <cuda.h>

namespace fake {

// device.cpp
CUresult init(unsigned flags);
CUresult driver_get_version(int* version);
CUresult device_get_count(int* count);
CUresult device_get(CUdevice* device, int ordinal);
CUresult device_get_name(char* name, int length, CUdevice);
CUresult device_get_uuid(CUuuid*, CUdevice);
CUresult device_total_mem(size_t* bytes, CUdevice);
CUresult device_get_attribute(int* value, CUdevice_attribute, CUdevice);
CUresult device_get_pci_bus_id(char* id, int length, CUdevice);
CUresult device_can_access_peer(int* can, CUdevice, CUdevice peer);
CUresult device_get_p2p_attribute(int* value, CUdevice_P2PAttribute, CUdevice src, CUdevice dst);

// context.cpp
CUresult device_primary_ctx_retain(CUcontext*, CUdevice);
CUresult device_primary_ctx_release(CUdevice);
CUresult ctx_create(CUcontext*, CUctxCreateParams*, unsigned flags, CUdevice);
CUresult ctx_destroy(CUcontext);
CUresult ctx_set_current(CUcontext);
CUresult ctx_get_current(CUcontext*);
CUresult ctx_get_device(CUdevice*);
CUresult ctx_get_device_of(CUdevice*, CUcontext);
CUresult ctx_enable_peer_access(CUcontext peer, unsigned flags);
CUresult ctx_disable_peer_access(CUcontext peer);
CUresult ctx_synchronize();
CUresult ctx_synchronize_of(CUcontext);

// memory.cpp
CUresult mem_get_info(size_t* free, size_t* total);
CUresult mem_alloc(CUdeviceptr*, size_t bytes);
CUresult mem_free(CUdeviceptr);
CUresult mem_alloc_managed(CUdeviceptr*, size_t bytes, unsigned flags);
CUresult mem_prefetch_async(CUdeviceptr, size_t bytes, CUmemLocation, unsigned flags, CUstream);
CUresult mem_prefetch_batch_async(CUdeviceptr* starts, size_t* lengths, size_t count, CUmemLocation* places,
                                  size_t* firsts, size_t place_count, unsigned long long flags, CUstream);
CUresult mem_discard_batch_async(CUdeviceptr* starts, size_t* lengths, size_t count, unsigned long long flags,
                                 CUstream);
CUresult mem_discard_and_prefetch_batch_async(CUdeviceptr* starts, size_t* lengths, size_t count, CUmemLocation* places,
                                              size_t* firsts, size_t place_count, unsigned long long flags, CUstream);
CUresult mem_advise(CUdeviceptr, size_t bytes, CUmem_advise, CUmemLocation);
CUresult mem_host_alloc(void** address, size_t bytes, unsigned flags);
CUresult mem_free_host(void* address);
CUresult mem_host_register(void* address, size_t bytes, unsigned flags);
CUresult mem_host_unregister(void* address);
CUresult mem_host_get_device_pointer(CUdeviceptr*, void* address, unsigned flags);

// pointers.cpp
CUresult pointer_get_attributes(unsigned count, CUpointer_attribute* asked, void** answers, CUdeviceptr);

// captures.cpp
CUresult stream_begin_capture(CUstream, CUstreamCaptureMode);
CUresult stream_end_capture(CUstream, CUgraph*);
CUresult stream_is_capturing(CUstream, CUstreamCaptureStatus*);
CUresult thread_exchange_stream_capture_mode(CUstreamCaptureMode*);

// granted.cpp
CUresult device_get_default_mem_pool(CUmemoryPool*, CUdevice);
CUresult mem_pool_set_attribute(CUmemoryPool, CUmemPool_attribute, void* value);
CUresult mem_pool_set_access(CUmemoryPool, const CUmemAccessDesc*, size_t count);
CUresult mem_pool_trim_to(CUmemoryPool, size_t keep);
CUresult mem_alloc_async(CUdeviceptr*, size_t bytes, CUstream);
CUresult mem_free_async(CUdeviceptr, CUstream);
CUresult mem_get_allocation_granularity(size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags);
CUresult mem_create(CUmemGenericAllocationHandle*, size_t bytes, const CUmemAllocationProp*, unsigned long long flags);
CUresult mem_release(CUmemGenericAllocationHandle);
CUresult mem_address_reserve(CUdeviceptr*, size_t bytes, size_t alignment, CUdeviceptr where, unsigned long long flags);
CUresult mem_address_free(CUdeviceptr, size_t bytes);
CUresult mem_map(CUdeviceptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle, unsigned long long flags);
CUresult mem_unmap(CUdeviceptr, size_t bytes);
CUresult mem_set_access(CUdeviceptr, size_t bytes, const CUmemAccessDesc*, size_t count);
CUresult mem_export_to_shareable_handle(void* exported, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                        unsigned long long flags);
CUresult mem_import_from_shareable_handle(CUmemGenericAllocationHandle*, void* exported, CUmemAllocationHandleType);

// sharing.cpp
CUresult ipc_get_mem_handle(CUipcMemHandle*, CUdeviceptr);
CUresult ipc_open_mem_handle(CUdeviceptr*, CUipcMemHandle, unsigned flags);
CUresult ipc_close_mem_handle(CUdeviceptr);

// copies.cpp
CUresult memcpy_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream);
CUresult memcpy_htod_async(CUdeviceptr dst, const void* src, size_t bytes, CUstream);
CUresult memcpy_dtoh_async(void* dst, CUdeviceptr src, size_t bytes, CUstream);
CUresult memcpy_dtod_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream);
CUresult memcpy_peer_async(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                           CUstream);
CUresult memcpy_2d_async(const CUDA_MEMCPY2D*, CUstream);
CUresult memcpy_3d_async(const CUDA_MEMCPY3D*, CUstream);
CUresult memcpy_batch_async(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes*,
                            size_t* attribute_of, size_t attributes, CUstream);
CUresult memcpy_batch_async_of_12_8(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                    CUmemcpyAttributes*, size_t* attribute_of, size_t attributes, size_t* failed,
                                    CUstream);
CUresult memcpy_htod(CUdeviceptr dst, const void* src, size_t bytes);
CUresult memcpy_dtoh(void* dst, CUdeviceptr src, size_t bytes);
CUresult memset_d8_async(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream);

// stream_calls.cpp
CUresult ctx_get_stream_priority_range(int* lowest, int* highest);
CUresult stream_create(CUstream*, unsigned flags);
CUresult stream_create_with_priority(CUstream*, unsigned flags, int priority);
CUresult stream_destroy(CUstream);
CUresult stream_synchronize(CUstream);
CUresult stream_query(CUstream);
CUresult stream_get_ctx(CUstream, CUcontext*);
CUresult stream_wait_event(CUstream, CUevent, unsigned flags);
CUresult stream_wait_value_32(CUstream, CUdeviceptr word, cuuint32_t value, unsigned flags);
CUresult event_create(CUevent*, unsigned flags);
CUresult event_destroy(CUevent);
CUresult event_record(CUevent, CUstream);
CUresult event_query(CUevent);
CUresult event_synchronize(CUevent);
CUresult event_elapsed_time(float* milliseconds, CUevent start, CUevent end);

// graphs.cpp
CUresult graph_create(CUgraph*, unsigned flags);
CUresult graph_destroy(CUgraph);
CUresult graph_add_memcpy_node(CUgraphNode*, CUgraph, const CUgraphNode* after, size_t count, const CUDA_MEMCPY3D*,
                               CUcontext);
CUresult graph_instantiate_with_flags(CUgraphExec*, CUgraph, unsigned long long flags);
CUresult graph_add_kernel_node(CUgraphNode*, CUgraph, const CUgraphNode* after, size_t count,
                               const CUDA_KERNEL_NODE_PARAMS*);
CUresult graph_exec_memcpy_node_set_params(CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext);
CUresult graph_exec_destroy(CUgraphExec);
CUresult graph_upload(CUgraphExec, CUstream);
CUresult graph_launch(CUgraphExec, CUstream);

// module.cpp
CUresult module_load_data(CUmodule*, const void* image);
CUresult module_unload(CUmodule);
CUresult module_get_function(CUfunction*, CUmodule, const char* name);
CUresult func_set_attribute(CUfunction, CUfunction_attribute, int value);
CUresult launch_kernel(CUfunction, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream, void** parameters,
                       void** extra);

// errors.cpp
CUresult get_error_name(CUresult, const char** name);
CUresult get_error_string(CUresult, const char** text);

// table.cpp
CUresult get_proc_address(const char* symbol, void** found, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult*);

// green.cpp
CUresult device_get_dev_resource(CUdevice, CUdevResource*, CUdevResourceType);
CUresult dev_sm_resource_split_by_count(CUdevResource* parts, unsigned* count, const CUdevResource* from,
                                        CUdevResource* remaining, unsigned flags, unsigned least);
CUresult dev_resource_generate_desc(CUdevResourceDesc*, CUdevResource*, unsigned count);
CUresult green_ctx_create(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned flags);
CUresult green_ctx_destroy(CUgreenCtx);
CUresult green_ctx_stream_create(CUstream*, CUgreenCtx, unsigned flags, int priority);

}  // namespace fake
