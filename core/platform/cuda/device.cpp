#include "platform/cuda/device.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/error.hpp"
#include "platform/cuda/device_code.hpp"

namespace linkscope {
namespace {

#define LINKSCOPE_ATTRIBUTE(name) {#name, CU_DEVICE_ATTRIBUTE_##name}
constexpr std::size_t most_results = 1024;

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

Stream::Stream(const Driver& driver) : driver_{driver} {
  LINKSCOPE_CU(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
}
Stream::~Stream() { driver_.cuStreamDestroy(stream_); }
void Stream::synchronize() const { LINKSCOPE_CU(driver_, cuStreamSynchronize, stream_); }

Event::Event(const Driver& driver, unsigned flags) : driver_{driver} {
  LINKSCOPE_CU(driver_, cuEventCreate, &event_, flags);
}
Event::~Event() { driver_.cuEventDestroy(event_); }

int DeviceFacts::attribute(const std::string& wanted, int otherwise) const {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const auto& entry) { return entry.first == wanted; });
  return found == attributes.end() ? otherwise : found->second;
}

Device::Device(const Driver& driver, DeviceFacts facts) : driver_{driver}, facts_{std::move(facts)} {
  LINKSCOPE_CU(driver_, cuDevicePrimaryCtxRetain, &context_, facts_.handle);
}

Device::~Device() {
  // the driver is shutting down, so nothing can be freed
  if (driver_.cuCtxSetCurrent(context_) != CUDA_SUCCESS) return;
  streams_.clear();
  if (flush_buffer_) driver_.cuMemFree(flush_buffer_);
  if (scratch_) driver_.cuMemFree(scratch_);
  for (const auto& [name, module] : modules_) driver_.cuModuleUnload(module);
  driver_.cuDevicePrimaryCtxRelease(facts_.handle);
}

void Device::use() const { LINKSCOPE_CU(driver_, cuCtxSetCurrent, context_); }

void Device::load_module(const std::string& module) {
  const int major = facts_.attribute("COMPUTE_CAPABILITY_MAJOR", 0),
            arch = major * 10 + facts_.attribute("COMPUTE_CAPABILITY_MINOR", 0);
  const DeviceCode* best = nullptr;
  for (const auto& code : device_codes()) {
    if (module != code.module) continue;
    // Machine code runs on its major version from its minor version; the driver compiles PTX for newer GPUs.
    const bool fits = code.ptx ? code.arch <= arch : code.arch / 10 == major && code.arch <= arch;
    if (fits && (!best || (best->ptx && !code.ptx) || (best->ptx == code.ptx && code.arch > best->arch))) best = &code;
  }
  if (!best)
    throw Error{ErrorKind::failed, facts_.name + " has compute capability " + std::to_string(major) + "." +
                                       std::to_string(arch % 10) + ", for which this build (" + device_code_compiler() +
                                       ") has no device code"};
  LINKSCOPE_CU(driver_, cuModuleLoadData, &modules_[module], best->begin);
}

CUfunction Device::function(const std::string& module, const std::string& name) {
  auto& function = functions_[name];
  if (!function) {
    use();
    if (!modules_.contains(module)) load_module(module);
    LINKSCOPE_CU(driver_, cuModuleGetFunction, &function, modules_.at(module), name.c_str());
  }
  return function;
}

void Device::launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void** arguments,
                    unsigned shared_bytes) const {
  LINKSCOPE_CU(driver_, cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, arguments,
               nullptr);
}

unsigned Device::all_shared_bytes() const {
  constexpr int of_any = 48 << 10;
  return static_cast<unsigned>(facts_.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", of_any));
}

void Device::allow_all_shared(CUfunction function) const {
  use();
  LINKSCOPE_CU(driver_, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
               static_cast<int>(all_shared_bytes()));
}

unsigned Device::blocks_of(const Shape& shape) const {
  return shape.blocks ? shape.blocks : static_cast<unsigned>(facts_.attribute("MULTIPROCESSOR_COUNT", 1));
}

Stream& Device::stream(std::size_t number) {
  while (streams_.size() <= number) {
    use();
    streams_.push_back(std::make_unique<Stream>(driver_));
  }
  return *streams_[number];
}

CUdeviceptr Device::scratch() {
  if (!scratch_) {
    use();
    LINKSCOPE_CU(driver_, cuMemAlloc, &scratch_, (2 + 2 * most_results) * sizeof(u64));
  }
  return scratch_;
}

CUdeviceptr Device::result(std::size_t actor) {
  if (actor >= most_results)
    throw Error{ErrorKind::usage, "a program of more than " + std::to_string(most_results) + " actors"};
  return scratch() + (2 + 2 * actor) * sizeof(u64);
}

void Device::flush_l2(CUstream stream) {
  const u64 bytes = 2 * static_cast<u64>(facts_.attribute("L2_CACHE_SIZE", 0));
  if (bytes == 0) return;
  if (!flush_buffer_) {
    const CUresult status = driver_.cuMemAlloc(&flush_buffer_, bytes);
    if (status == CUDA_ERROR_OUT_OF_MEMORY)
      throw Error{ErrorKind::memory, "no " + bytes_text(bytes) + " left on the GPU at " + facts_.pci +
                                         " to flush its L2 with (cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY); end what else "
                                         "holds memory of this GPU, or ask for smaller sizes (--only)"};
    driver_.check(status, "cuMemAlloc");
  }
  LINKSCOPE_CU(driver_, cuMemsetD8Async, flush_buffer_, 0, bytes, stream);
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

}  // namespace linkscope
