// The fake NVML: NVLink and the topology between two GPUs. Each GPU has 18 links of NVLink 4, to switches or directly
// to the other GPUs.
#include "gpus.hpp"
#include "nvml.hpp"

using namespace fake;

namespace {

constexpr unsigned link_count = 18, link_mbps = 26'562,
                   nvlink_4 = 5;  // as NVML counts, with 2.2 and 3.1
constexpr unsigned first_switch_bus = 0x05, switches = 4, switch_device_id = 0x22a310de;
enum Remote : unsigned { remote_gpu = 0, remote_switch = 2 };

struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned type;
  int status;
  union {
    double d;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
  } value;
};

bool has_links() {
  return nvml_settings().links != Links::none && (nvml_settings().links == Links::nvswitch || nvml_settings().gpus > 1);
}

int enter_link(const char* function, const NvmlGpu* gpu, unsigned link) {
  if (const int status = nvml_enter(function, gpu); status != nvml_success) return status;
  if (link >= link_count) return nvml_invalid_argument;
  return has_links() ? nvml_success : nvml_not_supported;
}

template <class T>
int give_link(const char* function, const NvmlGpu* gpu, unsigned link, T* answer, T value) {
  const int status = enter_link(function, gpu, link);
  if (status == nvml_success) *answer = value;
  return status;
}

/// Direct links are distributed evenly over the other GPUs.
const NvmlGpu& neighbour(const NvmlGpu& gpu, unsigned link) {
  const int others = nvml_settings().gpus - 1;
  const int other = static_cast<int>(link) % others;
  return *nvml_gpu(other < gpu.index ? other : other + 1);
}

NvmlPci remote_pci(const NvmlGpu* gpu, unsigned link) {
  if (!gpu || !has_links() || link >= link_count) return {};
  if (nvml_settings().links == Links::direct) return nvml_pci(neighbour(*gpu, link).bus, 0x233510de);
  return nvml_pci(first_switch_bus + link % switches, switch_device_id);
}

// --- field values -------------------------------------------------------------------------------------------------

enum Field : unsigned {
  crc_flit_errors = 38,
  crc_data_errors = 45,
  replay_errors = 52,
  recovery_errors = 59,
  memory_temperature = 82,
  speed_mbps_common = 90,
  link_count_field = 91,
  pcie_replays = 94,
  pcie_replay_rollovers = 95,
  throughput_data_tx = 138,
  throughput_raw_rx = 141,
  link_speed = 164,
  link_state = 165,
  link_version = 166,
  power_average = 185,
  power_instant = 186,
};

void give_unsigned(FieldValue& field, unsigned value) {
  field.type = 1;
  field.value.ui = value;
}

void give_long(FieldValue& field, unsigned long long value) {
  field.type = 3;
  field.value.ull = value;
}

int look_up(FieldValue& field) {
  const bool of_links = field.field == speed_mbps_common || field.field == link_count_field ||
                        (field.field >= throughput_data_tx && field.field <= throughput_raw_rx) ||
                        (field.field >= link_speed && field.field <= link_version);
  if (of_links && !has_links() && field.field != link_count_field) return nvml_not_supported;
  switch (field.field) {
    case crc_flit_errors:
    case crc_data_errors:
    case replay_errors:
    case recovery_errors:
      give_long(field, 0);
      return nvml_success;
    case memory_temperature:
      give_unsigned(field, 45);
      return nvml_success;
    case speed_mbps_common:
    case link_speed:
      give_unsigned(field, link_mbps);
      return nvml_success;
    case link_count_field:
      give_unsigned(field, has_links() ? link_count : 0);
      return nvml_success;
    case link_state:
      give_unsigned(field, 1);
      return nvml_success;
    case link_version:
      give_unsigned(field, nvlink_4);
      return nvml_success;
    case pcie_replays:
    case pcie_replay_rollovers:
      give_unsigned(field, 0);
      return nvml_success;
    case power_average:
    case power_instant:
      give_unsigned(field, 121'000);
      return nvml_success;
    default:
      break;
  }
  if (field.field < throughput_data_tx || field.field > throughput_raw_rx) return nvml_not_supported;
  give_long(field, 0);  // KiB: no traffic
  return nvml_success;
}

}  // namespace

NVML nvmlDeviceGetFieldValues(NvmlGpu* gpu, int count, FieldValue* fields) {
  if (const int status = nvml_enter(__func__, gpu); status != nvml_success) return status;
  for (int i = 0; i < count; ++i) {
    fields[i].status = nvml_refused("field:" + std::to_string(fields[i].field));
    if (fields[i].status == nvml_success) fields[i].status = look_up(fields[i]);
  }
  return nvml_success;
}

NVML nvmlDeviceGetNvLinkState(NvmlGpu* gpu, unsigned link, unsigned* active) {
  return give_link(__func__, gpu, link, active, 1u);
}
NVML nvmlDeviceGetNvLinkVersion(NvmlGpu* gpu, unsigned link, unsigned* version) {
  return give_link(__func__, gpu, link, version, nvlink_4);
}
NVML nvmlDeviceGetNvLinkCapability(NvmlGpu* gpu, unsigned link, unsigned, unsigned* has) {
  return give_link(__func__, gpu, link, has, 1u);
}
NVML nvmlDeviceGetNvLinkErrorCounter(NvmlGpu* gpu, unsigned link, unsigned, unsigned long long* count) {
  return give_link(__func__, gpu, link, count, 0ull);
}
NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(NvmlGpu* gpu, unsigned link, NvmlPci* pci) {
  return give_link(__func__, gpu, link, pci, remote_pci(gpu, link));
}
NVML nvmlDeviceGetNvLinkRemoteDeviceType(NvmlGpu* gpu, unsigned link, unsigned* type) {
  return give_link(__func__, gpu, link, type,
                   static_cast<unsigned>(nvml_settings().links == Links::direct ? remote_gpu : remote_switch));
}

NVML nvmlDeviceGetTopologyCommonAncestor(NvmlGpu* a, NvmlGpu* b, unsigned* level) {
  constexpr unsigned internal = 0, node = 40, system = 50;
  constexpr int gpus_a_socket = 4;
  if (!b) return nvml_invalid_argument;
  const bool same_socket = a && a->index / gpus_a_socket == b->index / gpus_a_socket;
  return give(__func__, a, level, a == b ? internal : same_socket ? node : system);
}

NVML nvmlDeviceGetP2PStatus(NvmlGpu* a, NvmlGpu* b, unsigned what, unsigned* status) {
  constexpr unsigned over_nvlink = 2, pci = 4, ok = 0, chipset_not_supported = 1, not_supported = 5;
  if (!b || what > pci) return nvml_invalid_argument;
  const bool missing = (what == over_nvlink && !has_links()) || (what == pci && has_links());
  return give(__func__, a, status, nvml_settings().no_peer ? chipset_not_supported : missing ? not_supported : ok);
}
