#include "gpu/facts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace linkscope {
namespace {

#define LINKSCOPE_ATTRIBUTE(name) {#name, CU_DEVICE_ATTRIBUTE_##name}
constexpr std::array<std::pair<const char*, CUdevice_attribute>, 34> attributes{{
    LINKSCOPE_ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR),
    LINKSCOPE_ATTRIBUTE(COMPUTE_CAPABILITY_MINOR),
    LINKSCOPE_ATTRIBUTE(MULTIPROCESSOR_COUNT),
    LINKSCOPE_ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    LINKSCOPE_ATTRIBUTE(L2_CACHE_SIZE),
    LINKSCOPE_ATTRIBUTE(ASYNC_ENGINE_COUNT),
    LINKSCOPE_ATTRIBUTE(CLOCK_RATE),
    LINKSCOPE_ATTRIBUTE(MEMORY_CLOCK_RATE),
    LINKSCOPE_ATTRIBUTE(GLOBAL_MEMORY_BUS_WIDTH),
    LINKSCOPE_ATTRIBUTE(COMPUTE_MODE),
    LINKSCOPE_ATTRIBUTE(ECC_ENABLED),
    LINKSCOPE_ATTRIBUTE(INTEGRATED),
    LINKSCOPE_ATTRIBUTE(UNIFIED_ADDRESSING),
    LINKSCOPE_ATTRIBUTE(CAN_MAP_HOST_MEMORY),
    LINKSCOPE_ATTRIBUTE(MANAGED_MEMORY),
    LINKSCOPE_ATTRIBUTE(CONCURRENT_MANAGED_ACCESS),
    LINKSCOPE_ATTRIBUTE(PAGEABLE_MEMORY_ACCESS),
    LINKSCOPE_ATTRIBUTE(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    LINKSCOPE_ATTRIBUTE(DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    LINKSCOPE_ATTRIBUTE(HOST_NATIVE_ATOMIC_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(HOST_REGISTER_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    LINKSCOPE_ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(HANDLE_TYPE_FABRIC_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(MEMORY_POOLS_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(HOST_NUMA_MEMORY_POOLS_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(GPU_DIRECT_RDMA_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(DMA_BUF_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(CAN_USE_64_BIT_STREAM_MEM_OPS),
    LINKSCOPE_ATTRIBUTE(CONCURRENT_KERNELS),
    LINKSCOPE_ATTRIBUTE(IPC_EVENT_SUPPORTED),
    LINKSCOPE_ATTRIBUTE(NUMA_ID),
    LINKSCOPE_ATTRIBUTE(MULTICAST_SUPPORTED),
}};
#undef LINKSCOPE_ATTRIBUTE

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex.data();
  }
  return text;
}

DeviceFacts read_facts(const Driver& driver, int ordinal) {
  DeviceFacts facts;
  LINKSCOPE_CU(driver, cuDeviceGet, &facts.handle, ordinal);
  std::array<char, 256> name{}, pci{};
  LINKSCOPE_CU(driver, cuDeviceGetName, name.data(), name.size(), facts.handle);
  LINKSCOPE_CU(driver, cuDeviceGetPCIBusId, pci.data(), pci.size(), facts.handle);
  CUuuid uuid{};
  LINKSCOPE_CU(driver, cuDeviceGetUuid, &uuid, facts.handle);
  std::size_t memory = 0;
  LINKSCOPE_CU(driver, cuDeviceTotalMem, &memory, facts.handle);
  facts.name = name.data();
  facts.pci = pci.data();
  facts.uuid = uuid_text(uuid);
  facts.memory_bytes = memory;
  for (const auto& [label, attribute] : attributes) {
    int value = 0;
    // Attributes that an older driver does not know are absent, not zero.
    if (driver.cuDeviceGetAttribute(&value, attribute, facts.handle) == CUDA_SUCCESS)
      facts.attributes.emplace_back(label, value);
  }
  return facts;
}

}  // namespace

int DeviceFacts::attribute(const std::string& wanted, int otherwise) const {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const auto& entry) { return entry.first == wanted; });
  return found == attributes.end() ? otherwise : found->second;
}

std::vector<DeviceFacts> list_devices(const Driver& driver) {
  std::vector<DeviceFacts> devices;
  if (!driver.usable()) return devices;
  int count = 0;
  LINKSCOPE_CU(driver, cuDeviceGetCount, &count);
  for (int ordinal = 0; ordinal < count; ++ordinal) devices.push_back(read_facts(driver, ordinal));
  std::sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) { return a.pci < b.pci; });
  return devices;
}

std::vector<PeerFacts> list_peers(const Driver& driver, const std::vector<DeviceFacts>& gpus) {
  std::vector<PeerFacts> peers;
  if (!driver.why_no("cuDeviceCanAccessPeer").empty()) return peers;
  for (u32 from = 0; from < gpus.size(); ++from)
    for (u32 to = 0; to < gpus.size(); ++to) {
      if (from == to) continue;
      PeerFacts peer{from, to};
      int access = 0, atomics = 0;
      LINKSCOPE_CU(driver, cuDeviceCanAccessPeer, &access, gpus[from].handle, gpus[to].handle);
      if (driver.cuDeviceGetP2PAttribute) {
        driver.cuDeviceGetP2PAttribute(&peer.performance_rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK,
                                       gpus[from].handle, gpus[to].handle);
        driver.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, gpus[from].handle,
                                       gpus[to].handle);
      }
      peer.access = access != 0;
      peer.native_atomics = atomics != 0;
      peers.push_back(peer);
    }
  return peers;
}

}  // namespace linkscope
