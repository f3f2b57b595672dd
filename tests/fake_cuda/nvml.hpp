// Declarations of the fake NVML. No wheel that the build needs contains NVIDIA's header, so the types are written out
// as in nvidia-ml-py.
#pragma once
#include <set>
#include <string>

namespace fake {

enum NvmlReturn : int {
  nvml_success = 0,
  nvml_uninitialized = 1,
  nvml_invalid_argument = 2,
  nvml_not_supported = 3,
  nvml_not_found = 6,
  nvml_insufficient_size = 7,
  nvml_gpu_is_lost = 15,
};

enum class Links { nvswitch, direct, none };

/// The settings of the fake NVML, read once from FAKE_NVML_* and FAKE_CUDA_* (table in README.md).
struct NvmlSettings {
  int cuda_version = 13000;
  int gpus = 2;
  unsigned long long memory_bytes = 0;
  int init_error = nvml_success;
  int lost_gpu = -1;
  unsigned long long throttle = 0;
  unsigned pcie_generation = 5, pcie_width = 16;  // current values; at most 5 and 16
  Links links = Links::nvswitch;
  int compute_mode = 0;
  unsigned compute_mode_bus = 0;  // bus of the only GPU in that mode; 0: all GPUs
  bool no_peer = false;
  std::set<std::string> not_supported;  // "function" or "function:code"
};

const NvmlSettings& nvml_settings();

/// The target of a handle.
struct NvmlGpu {
  int index = 0;  // in bus order, as NVML counts
  unsigned bus = 0;
};

/// The GPU of that index, or null.
[[nodiscard]] NvmlGpu* nvml_gpu(int index);

/// The status that a function must return at its start; nvml_success: continue.
[[nodiscard]] int nvml_enter(const char* function);
[[nodiscard]] int nvml_enter(const char* function, const NvmlGpu*);
/// The status that FAKE_NVML_NOT_SUPPORTED sets for a name, or nvml_success.
[[nodiscard]] int nvml_refused(const std::string& name);

/// The body of most functions: returns one value of a GPU.
template <class T>
int give(const char* function, const NvmlGpu* gpu, T* answer, T value) {
  const int status = nvml_enter(function, gpu);
  if (status != nvml_success) return status;
  if (!answer) return nvml_invalid_argument;
  *answer = value;
  return nvml_success;
}

/// Copies the text with its terminator, if it fits.
[[nodiscard]] int give_text(char* answer, unsigned size, const std::string& text);

constexpr int bus_id_legacy_size = 16, bus_id_size = 32;
struct NvmlPci {
  char bus_id_legacy[bus_id_legacy_size];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[bus_id_size];
};
[[nodiscard]] NvmlPci nvml_pci(unsigned bus, unsigned device_id);

}  // namespace fake

#define NVML extern "C" __attribute__((visibility("default"))) int
