// The fake NVML: settings, initialization and shutdown, the system, and the list of GPUs.
#include "nvml.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <map>

#include "environment.hpp"
#include "gpus.hpp"

namespace fake {
namespace {

std::atomic<int> users{0};

NvmlSettings read() {
  NvmlSettings s;
  s.cuda_version = static_cast<int>(number("FAKE_CUDA_VERSION", 13000));
  const auto gpus = number("FAKE_NVML_GPUS", number("FAKE_CUDA_GPUS", 2));
  if (gpus > max_gpus) refuse("FAKE_NVML_GPUS", std::to_string(gpus), "a number up to 8");
  s.gpus = static_cast<int>(gpus);
  s.memory_bytes = number("FAKE_CUDA_MEMORY", h200_bytes);
  s.init_error = static_cast<int>(number("FAKE_NVML_ERROR", 0));
  s.lost_gpu = text("FAKE_NVML_LOST").empty() ? -1 : static_cast<int>(number("FAKE_NVML_LOST", 0));
  s.throttle = to_number("FAKE_NVML_THROTTLE", text("FAKE_NVML_THROTTLE", "0"), 16);
  const auto pcie = text("FAKE_NVML_PCIE", "5x16");
  const auto x = pcie.find('x');
  if (x == std::string::npos) refuse("FAKE_NVML_PCIE", pcie, "generation x width, such as 4x8");
  s.pcie_generation = static_cast<unsigned>(to_number("FAKE_NVML_PCIE", pcie.substr(0, x)));
  s.pcie_width = static_cast<unsigned>(to_number("FAKE_NVML_PCIE", pcie.substr(x + 1)));
  const std::map<std::string, Links> kinds{
      {"switch", Links::nvswitch}, {"direct", Links::direct}, {"none", Links::none}};
  const auto links = kinds.find(text("FAKE_NVML_LINKS", "switch"));
  if (links == kinds.end()) refuse("FAKE_NVML_LINKS", text("FAKE_NVML_LINKS"), "switch, direct or none");
  s.links = links->second;
  const auto [mode, ordinal] = with_number("FAKE_CUDA_MODE", text("FAKE_CUDA_MODE", "default"), max_gpus);
  if (ordinal < max_gpus) s.compute_mode_bus = buses[ordinal];
  s.compute_mode = mode.starts_with("exclusive") ? 3 : mode == "prohibited" ? 2 : 0;
  s.no_peer = flag("FAKE_CUDA_NO_PEER");
  s.not_supported = list("FAKE_NVML_NOT_SUPPORTED");
  return s;
}

const char* driver_version() {
  const int cuda = nvml_settings().cuda_version;
  return cuda >= 13000 ? "580.159.04" : cuda >= 12080 ? "570.124.06" : cuda >= 12040 ? "550.54.15" : "525.60.13";
}

int find_gpu(NvmlGpu** found, const auto& matches) {
  for (int i = 0; i < nvml_settings().gpus; ++i)
    if (matches(*nvml_gpu(i))) {
      *found = nvml_gpu(i);
      return nvml_success;
    }
  return nvml_not_found;
}

}  // namespace

const NvmlSettings& nvml_settings() {
  static const auto* kept = new NvmlSettings{read()};
  return *kept;
}

NvmlGpu* nvml_gpu(int index) {
  static auto* gpus = [] {
    auto* made = new std::array<NvmlGpu, max_gpus>;
    for (int i = 0; const unsigned bus : sorted_buses(nvml_settings().gpus)) {
      (*made)[static_cast<std::size_t>(i)] = {i, bus};
      ++i;
    }
    return made;
  }();
  return index >= 0 && index < nvml_settings().gpus ? &(*gpus)[static_cast<std::size_t>(index)] : nullptr;
}

int nvml_refused(const std::string& name) {
  const auto& refusals = nvml_settings().not_supported;
  if (refusals.contains(name)) return nvml_not_supported;
  const auto with_code = refusals.lower_bound(name + ":");
  if (with_code == refusals.end() || !with_code->starts_with(name + ":")) return nvml_success;
  return static_cast<int>(to_number("FAKE_NVML_NOT_SUPPORTED", with_code->substr(name.size() + 1)));
}

int nvml_enter(const char* function) { return users == 0 ? nvml_uninitialized : nvml_refused(function); }

int nvml_enter(const char* function, const NvmlGpu* gpu) {
  if (const int status = nvml_enter(function); status != nvml_success) return status;
  if (!gpu) return nvml_invalid_argument;
  return gpu->index == nvml_settings().lost_gpu ? nvml_gpu_is_lost : nvml_success;
}

int give_text(char* answer, unsigned size, const std::string& text) {
  if (text.size() >= size) return nvml_insufficient_size;
  std::memcpy(answer, text.c_str(), text.size() + 1);
  return nvml_success;
}

NvmlPci nvml_pci(unsigned bus, unsigned device_id) {
  NvmlPci pci{};
  pci.bus = bus;
  pci.pci_device_id = device_id;
  pci.pci_subsystem_id = device_id;
  (void)give_text(pci.bus_id_legacy, bus_id_legacy_size, pci_id(bus));
  (void)give_text(pci.bus_id, bus_id_size, pci_id(bus, 8));
  return pci;
}

}  // namespace fake

using namespace fake;

NVML nvmlInitWithFlags(unsigned) {
  if (nvml_settings().init_error != nvml_success) return nvml_settings().init_error;
  ++users;
  return nvml_success;
}
NVML nvmlInit_v2() { return nvmlInitWithFlags(0); }
NVML nvmlShutdown() {
  if (users == 0) return nvml_uninitialized;
  --users;
  return nvml_success;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int status) {
  static const auto* words = new std::map<int, const char*>{
      {0, "Success"},
      {1, "Uninitialized"},
      {2, "Invalid Argument"},
      {3, "Not Supported"},
      {4, "Insufficient Permissions"},
      {6, "Not Found"},
      {7, "Insufficient Size"},
      {9, "Driver Not Loaded"},
      {13, "Function Not Found"},
      {15, "GPU is lost"},
      {18, "Driver/library version mismatch"},
      {999, "Unknown Error"},
  };
  const auto found = words->find(status);
  return found == words->end() ? "Unknown Error" : found->second;
}

NVML nvmlSystemGetDriverVersion(char* text, unsigned size) {
  const int status = nvml_enter(__func__);
  return status == nvml_success ? give_text(text, size, driver_version()) : status;
}
NVML nvmlSystemGetNVMLVersion(char* text, unsigned size) {
  const int status = nvml_enter(__func__);
  return status == nvml_success
             ? give_text(text, size, std::to_string(nvml_settings().cuda_version / 1000) + "." + driver_version())
             : status;
}
NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = nvml_settings().cuda_version;
  return nvml_refused(__func__);
}
NVML nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

NVML nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(nvml_settings().gpus);
  return nvml_enter(__func__);
}
NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlGpu** gpu) {
  if (const int status = nvml_enter(__func__); status != nvml_success) return status;
  *gpu = nvml_gpu(static_cast<int>(index));
  return *gpu ? nvml_success : nvml_invalid_argument;
}
NVML nvmlDeviceGetHandleByUUID(const char* uuid, NvmlGpu** gpu) {
  if (const int status = nvml_enter(__func__); status != nvml_success) return status;
  return find_gpu(gpu, [&](const NvmlGpu& candidate) { return uuid_text(candidate.bus) == uuid; });
}
NVML nvmlDeviceGetHandleByPciBusId_v2(const char* id, NvmlGpu** gpu) {
  if (const int status = nvml_enter(__func__); status != nvml_success) return status;
  return find_gpu(
      gpu, [&](const NvmlGpu& candidate) { return pci_id(candidate.bus) == id || pci_id(candidate.bus, 8) == id; });
}
