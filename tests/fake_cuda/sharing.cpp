// Memory shared between processes: IPC handles, and the files behind exported virtual memory (granted.cpp). An IPC
// handle names the descriptor, in the exporting process, of the file that holds the memory. Others can open it while
// that process lives.
#include "sharing.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>

#include "calls.hpp"
#include "context.hpp"
#include "faults.hpp"
#include "leaks.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace fake {
namespace {

constexpr char name[] = "fake GPU memory";

struct Label {  // in the file, after the memory
  char name[sizeof fake::name] = {};
  Backing backing;
};

struct IpcHandle {
  char name[sizeof fake::name] = {};
  int process = 0, descriptor = 0;
};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

struct Opened {
  CUdeviceptr at = 0;
  unsigned times = 0;
};

/// By process and descriptor of the handle and by opening device. A second opening gets the same address.
std::map<std::tuple<int, int, CUdevice>, Opened>& opened() {
  static auto* all = new std::map<std::tuple<int, int, CUdevice>, Opened>;
  return *all;
}

}  // namespace

int make_backing(unsigned long long bytes, CUdevice device) {
  const int made = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (made < 0) return -1;
  Label label{{}, {bytes, device}};
  std::memcpy(label.name, name, sizeof name);
  if (pwrite(made, &label, sizeof label, static_cast<off_t>(bytes)) != static_cast<ssize_t>(sizeof label)) {
    close(made);
    return -1;
  }
  return made;
}

std::optional<Backing> backing_of(int descriptor) {
  struct stat found{};
  Label label;
  if (fstat(descriptor, &found) != 0 || found.st_size < static_cast<off_t>(sizeof label)) return {};
  const auto at = found.st_size - static_cast<off_t>(sizeof label);
  if (pread(descriptor, &label, sizeof label, at) != static_cast<ssize_t>(sizeof label) ||
      std::memcmp(label.name, name, sizeof name) != 0)
    return {};
  return static_cast<off_t>(label.backing.bytes) == at ? std::optional{label.backing} : std::nullopt;
}

void* map_backing(unsigned long long at, unsigned long long bytes, int descriptor, bool opened) {
  const int kind = opened && settings().private_shares ? MAP_PRIVATE : MAP_SHARED;
  void* start = mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE,
                     kind | MAP_NORESERVE | (at ? MAP_FIXED : 0), descriptor, 0);
  return start == MAP_FAILED ? nullptr : start;
}

void count_opened(LeakCounts& counts) {
  for (const auto& [what, one] : opened()) counts["openings of other processes' memory"] += one.times;
}

std::size_t openings_by(CUdevice device) {
  const std::lock_guard lock{global_mutex()};
  return static_cast<std::size_t>(std::count_if(opened().begin(), opened().end(),
                                                [&](const auto& one) { return std::get<2>(one.first) == device; }));
}

CUresult ipc_get_mem_handle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto allocation = find(pointer, 1);
  if (!handle || !allocation || allocation->kind != Allocation::Kind::device || allocation->base != pointer)
    return CUDA_ERROR_INVALID_VALUE;
  IpcHandle made{{}, getpid(), allocation->descriptor};
  std::memcpy(made.name, name, sizeof name);
  *handle = {};
  std::memcpy(handle->reserved, &made, sizeof made);
  return CUDA_SUCCESS;
}

CUresult ipc_open_mem_handle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  IpcHandle made;
  std::memcpy(&made, handle.reserved, sizeof made);
  if (!pointer || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || std::memcmp(made.name, name, sizeof name) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (made.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // like the driver: not its own handle
  const CUdevice by = current()->device;
  const std::lock_guard lock{global_mutex()};
  if (const auto again = opened().find({made.process, made.descriptor, by}); again != opened().end()) {
    ++again->second.times;
    *pointer = again->second.at;
    return CUDA_SUCCESS;
  }
  const auto path = "/proc/" + std::to_string(made.process) + "/fd/" + std::to_string(made.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return CUDA_ERROR_MAP_FAILED;
  const auto backing = backing_of(descriptor);
  const bool no_peer = backing && backing->device != by && settings().no_peer;
  void* start = backing && !no_peer ? map_backing(0, backing->bytes, descriptor, true) : nullptr;
  close(descriptor);
  if (no_peer) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (!start) return CUDA_ERROR_MAP_FAILED;
  *pointer = reinterpret_cast<CUdeviceptr>(start);
  Allocation allocation{Allocation::Kind::opened, *pointer, backing->bytes, backing->device};
  allocation.by = by;
  remember(allocation);
  opened()[{made.process, made.descriptor, by}] = {*pointer, 1};
  return CUDA_SUCCESS;
}

CUresult ipc_close_mem_handle(CUdeviceptr pointer) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  drain(nullptr);
  const std::lock_guard lock{global_mutex()};
  const auto found = std::find_if(opened().begin(), opened().end(), [&](const auto& one) {
    return one.second.at == pointer && std::get<2>(one.first) == current()->device;
  });
  if (found == opened().end()) {
    note_misuse("memory of another process that is closed, or not open");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--found->second.times > 0) return CUDA_SUCCESS;
  opened().erase(found);
  const auto allocation = forget(pointer, Allocation::Kind::opened);
  munmap(reinterpret_cast<void*>(pointer), allocation->bytes);
  return CUDA_SUCCESS;
}

}  // namespace fake
