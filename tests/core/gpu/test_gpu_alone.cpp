// core/gpu linked without programs, platforms and benchmarks, on the fake driver (tests/fake_cuda) with two GPUs.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/units.hpp"
#include "doctest.h"
#include "error_of.hpp"
#include "gpu/context.hpp"
#include "gpu/device.hpp"
#include "gpu/driver.hpp"
#include "gpu/facts.hpp"
#include "gpu/ipc.hpp"
#include "gpu/memory.hpp"
#include "gpu/stream.hpp"
#include "gpu/vmm.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

const Driver& driver() {
  static const Driver loaded;
  REQUIRE_MESSAGE(loaded.usable(), loaded.why_not());
  return loaded;
}

CUcontext current() {
  CUcontext context = nullptr;
  LINKSCOPE_CU(driver(), cuCtxGetCurrent, &context);
  return context;
}

/// Two GPUs, of which the caller uses the first.
struct TwoGpus {
  std::vector<DeviceFacts> facts = list_devices(driver());
  Device callers{driver(), facts.at(0), {}}, other{driver(), facts.at(1), {}};
  TwoGpus() { callers.use(); }
  ~TwoGpus() { driver().cuCtxSetCurrent(nullptr); }
};

}  // namespace

TEST_CASE("a context guard restores the caller's context") {
  const TwoGpus gpus;
  {
    const CurrentContext guard{driver(), gpus.other.context()};
    CHECK(current() == gpus.other.context());
    {
      const CurrentContext inner{driver(), gpus.callers.context()};
      CHECK(current() == gpus.callers.context());
    }
    CHECK(current() == gpus.other.context());
  }
  CHECK(current() == gpus.callers.context());
}

TEST_CASE("a context guard restores the state without a context") {
  const TwoGpus gpus;
  driver().cuCtxSetCurrent(nullptr);
  {
    const CurrentContext guard{driver(), gpus.other.context()};
    CHECK(current() == gpus.other.context());
  }
  CHECK(current() == nullptr);
}

TEST_CASE("a context guard restores the caller's context after an error") {
  const TwoGpus gpus;
  const auto error = error_of([&] {
    const CurrentContext guard{driver(), gpus.other.context()};
    const DeviceMemory memory{driver(), ~u64{0} >> 1};
  });
  CHECK_FALSE(error.empty());
  CHECK(current() == gpus.callers.context());
}

TEST_CASE("a device leaves the caller's context as it was") {
  TwoGpus gpus;
  const auto unchanged = [&] { return current() == gpus.callers.context(); };
  const Stream& stream = gpus.other.stream(3);
  CHECK(unchanged());
  CHECK(gpus.other.free_bytes() <= gpus.facts.at(1).memory_bytes);
  CHECK(unchanged());
  const CUdeviceptr first = gpus.other.result(0), last = gpus.other.result(Device::most_results - 1);
  CHECK(last - first == (Device::most_results - 1) * 2 * sizeof(u64));
  CHECK(unchanged());
  CHECK(error_of([&] { (void)gpus.other.function("copy", "linkscope_copy"); }).find("has no device code") !=
        std::string::npos);
  CHECK(unchanged());
  {
    Device again{driver(), gpus.facts.at(1), {}};
  }
  CHECK(unchanged());
  const CurrentContext guard{driver(), gpus.other.context()};
  LINKSCOPE_CU(driver(), cuMemsetD8Async, first, 7, 16, stream.get());  // the stream belongs to the other GPU
  stream.synchronize();
}

TEST_CASE("memory copied to a GPU is read back") {
  TwoGpus gpus;
  const CurrentContext guard{driver(), gpus.other.context()};
  const Stream& stream = gpus.other.stream(0);
  const PinnedMemory sent{driver(), 64_KiB, CU_MEMHOSTALLOC_PORTABLE},
      received{driver(), 64_KiB, CU_MEMHOSTALLOC_PORTABLE};
  const DeviceMemory memory{driver(), 64_KiB};
  for (u64 i = 0; i < 64_KiB; ++i) sent.data()[i] = static_cast<std::byte>(i % 251);
  std::memset(received.data(), 0, 64_KiB);
  LINKSCOPE_CU(driver(), cuMemcpyHtoDAsync, memory.address(), sent.data(), 64_KiB, stream.get());
  LINKSCOPE_CU(driver(), cuMemcpyDtoHAsync, received.data(), memory.address(), 64_KiB, stream.get());
  stream.synchronize();
  CHECK(std::equal(sent.data(), sent.data() + 64_KiB, received.data()));
}

TEST_CASE("memory is freed once") {
  const TwoGpus gpus;
  DeviceMemory memory{driver(), 1_MiB}, taken{std::move(memory)};
  PinnedMemory pinned{driver(), 1_MiB, 0}, pinned_taken{std::move(pinned)};
  CHECK(taken.address() != 0);
  CHECK(pinned_taken.data() != nullptr);
  taken.free();
  pinned_taken.free();
  CHECK(taken.address() == 0);
  CHECK(pinned_taken.data() == nullptr);
  taken.free();
  pinned_taken.free();
}

TEST_CASE("exported memory that is imported has the same bytes") {
  const TwoGpus gpus;
  const auto device = gpus.callers.facts().handle;
  const auto prop = exportable_on(device);
  const u64 bytes = whole_granules(driver(), prop, 1);
  const PhysicalMemory made{driver(), prop, bytes}, imported{driver(), made.exported()};
  const Mapping here{driver(), made, bytes, device}, there{driver(), imported, bytes, device};
  const std::array<u64, 2> written{0x1234, 0x5678};
  std::array<u64, 2> read{};
  LINKSCOPE_CU(driver(), cuMemcpyHtoDAsync, here.address(), written.data(), sizeof written, nullptr);
  LINKSCOPE_CU(driver(), cuMemcpyDtoH, read.data(), there.address(), sizeof read);
  CHECK(read == written);
}

TEST_CASE("the text of an error names the call and the driver's reason") {
  const TwoGpus gpus;
  CHECK(error_of([] {
          const DeviceMemory memory{driver(), ~u64{0} >> 1};
        }).starts_with("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"));
  CHECK(error_of([] {
          const CurrentContext guard{driver(), reinterpret_cast<CUcontext>(64)};
        }).starts_with("cuCtxSetCurrent: CUDA_ERROR_"));
  const DeviceMemory memory{driver(), 2_MiB};
  const auto handle = ipc_handle(driver(), memory.address());
  // A process cannot open its own handle.
  CHECK(error_of([&] {
          const IpcOpened opened{driver(), gpus.other, handle};
        }).starts_with("cuIpcOpenMemHandle: CUDA_ERROR_"));
  CHECK(current() == gpus.callers.context());
}
