// Queries of the driver and its GPUs that need no context.
#include <cstring>
#include <map>

#include "calls.hpp"
#include "context.hpp"
#include "faults.hpp"
#include "gpus.hpp"
#include "leaks.hpp"
#include "settings.hpp"

namespace fake {
namespace {

unsigned bus_of(CUdevice device) {
  return buses[static_cast<std::size_t>(settings().visible[static_cast<std::size_t>(device)])];
}

struct Attribute {
  int value;
  int since = 0;  // the first driver version that has it
};

const std::map<CUdevice_attribute, Attribute>& h200() {
  static const auto* table = new std::map<CUdevice_attribute, Attribute>{
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, {1024}},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, {32}},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, {1'980'000}},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, {132}},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, {h200_shared_bytes}},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, {0}},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, {1}},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, {1}},
      {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, {1}},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, {0}},
      {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, {0}},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, {3'201'000}},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, {6144}},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, {1 << 20}},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, {3}},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, {1}},
      {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, {1}},
      {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, {0}},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, {1}},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, {1}},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, {1}},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, {1}},
      {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, {0}},
      {CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, {0}},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, {1}},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, {1}},
      {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, {1}},
      {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, {1}},
      {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, {1}},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, {0, 12040}},
      {CU_DEVICE_ATTRIBUTE_NUMA_ID, {-1, 12020}},
      {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, {1, 12010}},
      {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, {1, 12090}},
  };
  return *table;
}

bool mode_applies(CUdevice device) {
  return settings().mode_gpu == never || settings().mode_gpu == static_cast<unsigned long long>(device);
}

}  // namespace

bool is_device(CUdevice device) { return device >= 0 && static_cast<std::size_t>(device) < settings().visible.size(); }

CUresult init(unsigned flags) {
  if (settings().init != CUDA_SUCCESS) return settings().init;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (settings().visible.empty()) return CUDA_ERROR_NO_DEVICE;
  set_initialized();
  report_leaks_at_exit();
  return CUDA_SUCCESS;
}

CUresult driver_get_version(int* version) {
  *version = settings().version;
  return CUDA_SUCCESS;
}

CUresult device_get_count(int* count) {
  *count = static_cast<int>(settings().visible.size());
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult device_get_name(char* name, int length, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (length < 1) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", h200_name);
  return CUDA_SUCCESS;
}

CUresult device_get_uuid(CUuuid* uuid, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto bytes = uuid_bytes(bus_of(device));
  std::memcpy(uuid->bytes, bytes.data(), bytes.size());
  return CUDA_SUCCESS;
}

CUresult device_total_mem(size_t* bytes, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = settings().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      *value = mode_applies(device) ? settings().mode : CU_COMPUTEMODE_DEFAULT;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = settings().capability_major;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = settings().capability_minor;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
      *value = settings().hmm;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = !settings().no_posix_fd;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = static_cast<int>(bus_of(device));
      return CUDA_SUCCESS;
    default:
      break;
  }
  const auto found = h200().find(attribute);
  if (found == h200().end() || found->second.since > settings().version) return CUDA_ERROR_INVALID_VALUE;
  *value = found->second.value;
  return CUDA_SUCCESS;
}

CUresult device_get_pci_bus_id(char* id, int length, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (length < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(id, static_cast<std::size_t>(length), "%s", pci_id(bus_of(device)).c_str());
  return CUDA_SUCCESS;
}

CUresult device_can_access_peer(int* can, CUdevice device, CUdevice peer) {
  if (!is_device(device) || !is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer && !settings().no_peer;
  return CUDA_SUCCESS;
}

CUresult device_get_p2p_attribute(int* value, CUdevice_P2PAttribute attribute, CUdevice src, CUdevice dst) {
  if (!is_device(src) || !is_device(dst) || src == dst) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = !settings().no_peer;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace fake
