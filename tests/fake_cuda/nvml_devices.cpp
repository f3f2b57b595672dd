// The fake NVML: values of one GPU, those of an H200 under load. It supports what an H200 in an x86 node supports.
#include "gpus.hpp"
#include "nvml.hpp"

using namespace fake;

namespace {

constexpr unsigned h200_device_id = 0x233510de;

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Bar1 {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct Violation {
  unsigned long long reference_time, violation_time;
};

constexpr unsigned long long reserved_bytes = 600ull << 20;

int clock_mhz(unsigned type, unsigned* mhz) {
  constexpr unsigned memory_clock = 2, types = 4;
  if (type >= types || !mhz) return nvml_invalid_argument;
  *mhz = type == memory_clock ? 3201 : type == 3 ? 1545 : 1980;
  return nvml_success;
}

}  // namespace

NVML nvmlDeviceGetName(NvmlGpu* gpu, char* text, unsigned size) {
  const int status = nvml_enter(__func__, gpu);
  return status == nvml_success ? give_text(text, size, h200_name) : status;
}
NVML nvmlDeviceGetUUID(NvmlGpu* gpu, char* text, unsigned size) {
  const int status = nvml_enter(__func__, gpu);
  return status == nvml_success ? give_text(text, size, uuid_text(gpu->bus)) : status;
}
NVML nvmlDeviceGetIndex(NvmlGpu* gpu, unsigned* index) {
  return give(__func__, gpu, index, gpu ? static_cast<unsigned>(gpu->index) : 0);
}
NVML nvmlDeviceGetMinorNumber(NvmlGpu* gpu, unsigned* minor) {
  return give(__func__, gpu, minor, gpu ? static_cast<unsigned>(gpu->index) : 0);
}
NVML nvmlDeviceGetPciInfo_v3(NvmlGpu* gpu, NvmlPci* pci) {
  return give(__func__, gpu, pci, nvml_pci(gpu ? gpu->bus : 0, h200_device_id));
}
NVML nvmlDeviceGetBrand(NvmlGpu* gpu, unsigned* brand) { return give(__func__, gpu, brand, 14u); }
NVML nvmlDeviceGetArchitecture(NvmlGpu* gpu, unsigned* architecture) { return give(__func__, gpu, architecture, 9u); }
NVML nvmlDeviceGetNumGpuCores(NvmlGpu* gpu, unsigned* cores) { return give(__func__, gpu, cores, 16896u); }
NVML nvmlDeviceGetCudaComputeCapability(NvmlGpu* gpu, int* major, int* minor) {
  *minor = 0;
  return give(__func__, gpu, major, 9);
}

// --- memory -------------------------------------------------------------------------------------------------------

NVML nvmlDeviceGetMemoryInfo(NvmlGpu* gpu, Memory* memory) {
  const auto total = nvml_settings().memory_bytes;
  return give(__func__, gpu, memory, {total, total - total / 256, total / 256});
}
NVML nvmlDeviceGetMemoryInfo_v2(NvmlGpu* gpu, MemoryV2* memory) {
  const auto total = nvml_settings().memory_bytes;
  return give(__func__, gpu, memory, {memory->version, total + reserved_bytes, reserved_bytes, total, 0});
}
NVML nvmlDeviceGetBAR1MemoryInfo(NvmlGpu* gpu, Bar1* memory) {
  return give(__func__, gpu, memory, {256ull << 30, 255ull << 30, 1ull << 30});
}
NVML nvmlDeviceGetMemoryBusWidth(NvmlGpu* gpu, unsigned* bits) { return give(__func__, gpu, bits, 6144u); }
// Supported only if GPU memory is a NUMA node (Grace).
NVML nvmlDeviceGetNumaNodeId(NvmlGpu*, unsigned*) { return nvml_not_supported; }
NVML nvmlDeviceGetMemoryAffinity(NvmlGpu* gpu, unsigned words, unsigned long* mask, unsigned) {
  for (unsigned i = 1; i < words; ++i) mask[i] = 0;
  return give(__func__, gpu, mask, 1ul);
}

// --- PCIe ---------------------------------------------------------------------------------------------------------

NVML nvmlDeviceGetMaxPcieLinkGeneration(NvmlGpu* gpu, unsigned* generation) {
  return give(__func__, gpu, generation, 5u);
}
NVML nvmlDeviceGetGpuMaxPcieLinkGeneration(NvmlGpu* gpu, unsigned* generation) {
  return give(__func__, gpu, generation, 5u);
}
NVML nvmlDeviceGetMaxPcieLinkWidth(NvmlGpu* gpu, unsigned* width) { return give(__func__, gpu, width, 16u); }
NVML nvmlDeviceGetCurrPcieLinkGeneration(NvmlGpu* gpu, unsigned* generation) {
  return give(__func__, gpu, generation, nvml_settings().pcie_generation);
}
NVML nvmlDeviceGetCurrPcieLinkWidth(NvmlGpu* gpu, unsigned* width) {
  return give(__func__, gpu, width, nvml_settings().pcie_width);
}
NVML nvmlDeviceGetPcieLinkMaxSpeed(NvmlGpu* gpu, unsigned* mbps) { return give(__func__, gpu, mbps, 32000u); }
NVML nvmlDeviceGetPcieSpeed(NvmlGpu* gpu, unsigned* mbps) { return give(__func__, gpu, mbps, 32000u); }
NVML nvmlDeviceGetPcieThroughput(NvmlGpu* gpu, unsigned, unsigned* kib_a_second) {
  return give(__func__, gpu, kib_a_second, 0u);
}
NVML nvmlDeviceGetPcieReplayCounter(NvmlGpu* gpu, unsigned* count) { return give(__func__, gpu, count, 0u); }

// --- state --------------------------------------------------------------------------------------------------------

NVML nvmlDeviceGetClockInfo(NvmlGpu* gpu, unsigned type, unsigned* mhz) {
  const int status = nvml_enter(__func__, gpu);
  return status == nvml_success ? clock_mhz(type, mhz) : status;
}
NVML nvmlDeviceGetMaxClockInfo(NvmlGpu* gpu, unsigned type, unsigned* mhz) {
  const int status = nvml_enter(__func__, gpu);
  return status == nvml_success ? clock_mhz(type, mhz) : status;
}
NVML nvmlDeviceGetApplicationsClock(NvmlGpu* gpu, unsigned type, unsigned* mhz) {
  const int status = nvml_enter(__func__, gpu);
  return status == nvml_success ? clock_mhz(type, mhz) : status;
}
NVML nvmlDeviceGetCurrentClocksEventReasons(NvmlGpu* gpu, unsigned long long* reasons) {
  return give(__func__, gpu, reasons, nvml_settings().throttle);
}
NVML nvmlDeviceGetCurrentClocksThrottleReasons(NvmlGpu* gpu, unsigned long long* reasons) {
  return give(__func__, gpu, reasons, nvml_settings().throttle);
}
NVML nvmlDeviceGetViolationStatus(NvmlGpu* gpu, unsigned, Violation* violation) {
  return give(__func__, gpu, violation, {0, 0});
}
NVML nvmlDeviceGetPerformanceState(NvmlGpu* gpu, unsigned* state) { return give(__func__, gpu, state, 0u); }
NVML nvmlDeviceGetTemperature(NvmlGpu* gpu, unsigned, unsigned* celsius) { return give(__func__, gpu, celsius, 41u); }
NVML nvmlDeviceGetPowerUsage(NvmlGpu* gpu, unsigned* milliwatts) { return give(__func__, gpu, milliwatts, 121'000u); }
NVML nvmlDeviceGetEnforcedPowerLimit(NvmlGpu* gpu, unsigned* milliwatts) {
  return give(__func__, gpu, milliwatts, 700'000u);
}
NVML nvmlDeviceGetPowerManagementLimit(NvmlGpu* gpu, unsigned* milliwatts) {
  return give(__func__, gpu, milliwatts, 700'000u);
}
NVML nvmlDeviceGetPowerManagementDefaultLimit(NvmlGpu* gpu, unsigned* milliwatts) {
  return give(__func__, gpu, milliwatts, 700'000u);
}
NVML nvmlDeviceGetUtilizationRates(NvmlGpu* gpu, Utilization* utilization) {
  return give(__func__, gpu, utilization, {0, 0});
}
NVML nvmlDeviceGetPersistenceMode(NvmlGpu* gpu, unsigned* mode) { return give(__func__, gpu, mode, 1u); }
NVML nvmlDeviceGetComputeMode(NvmlGpu* gpu, int* mode) {
  const unsigned bus = nvml_settings().compute_mode_bus;
  const bool applies = bus == 0 || (gpu && gpu->bus == bus);
  return give(__func__, gpu, mode, applies ? nvml_settings().compute_mode : 0);
}
NVML nvmlDeviceGetEccMode(NvmlGpu* gpu, unsigned* now, unsigned* pending) {
  *pending = 1;
  return give(__func__, gpu, now, 1u);
}
NVML nvmlDeviceGetMigMode(NvmlGpu* gpu, unsigned* now, unsigned* pending) {
  *pending = 0;
  return give(__func__, gpu, now, 0u);
}
NVML nvmlDeviceGetTotalEccErrors(NvmlGpu* gpu, unsigned, unsigned, unsigned long long* count) {
  return give(__func__, gpu, count, 0ull);
}
NVML nvmlDeviceGetRemappedRows(NvmlGpu* gpu, unsigned* correctable, unsigned* uncorrectable, unsigned* pending,
                               unsigned* failed) {
  *uncorrectable = *pending = *failed = 0;
  return give(__func__, gpu, correctable, 0u);
}
NVML nvmlDeviceGetVirtualizationMode(NvmlGpu* gpu, unsigned* mode) { return give(__func__, gpu, mode, 0u); }
NVML nvmlDeviceGetComputeRunningProcesses_v3(NvmlGpu* gpu, unsigned* count, void*) {
  return give(__func__, gpu, count, 0u);
}
