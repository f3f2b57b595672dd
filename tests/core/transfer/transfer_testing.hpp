// Memory, streams and planned failures for the tests of core/transfer, on the fake driver.
#pragma once
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "doctest.h"
#include "error_of.hpp"
#include "fake_driver.hpp"
#include "gpu/context.hpp"
#include "gpu/device.hpp"
#include "gpu/graph.hpp"
#include "gpu/memory.hpp"
#include "gpu/stream.hpp"
#include "transfer/transfers.hpp"

namespace linkscope {

using namespace literals;
using Bytes = std::vector<std::byte>;

/// Shortens the limits of waits while it lives, for tests in which many waits are in vain. A copy may then fall back where
/// nothing failed.
struct Impatient {
  Impatient() { setenv("LINKSCOPE_PATIENCE", "0.1", 1); }
  ~Impatient() { setenv("LINKSCOPE_PATIENCE", before.c_str(), 1); }
  Impatient(const Impatient&) = delete;
  Impatient& operator=(const Impatient&) = delete;

  const std::string before = getenv("LINKSCOPE_PATIENCE");
};

inline const Driver& the_driver() {
  static const Driver loaded;
  REQUIRE_MESSAGE(loaded.usable(), loaded.why_not());
  return loaded;
}

/// Two GPUs, of which the caller uses the first; that one has memory and a stream.
struct Application {
  std::vector<DeviceFacts> facts = list_devices(the_driver());
  Device gpu{the_driver(), facts.at(0), {}}, other{the_driver(), facts.at(1), {}};
  explicit Application(u64 device_bytes = 80_MiB) {
    gpu.use();
    memory = {the_driver(), device_bytes};
    stream = std::make_unique<Stream>(the_driver());
  }
  ~Application() {
    gpu.use();
    stream->synchronize();
    stream.reset();
    memory = {};
    the_driver().cuCtxSetCurrent(nullptr);
  }
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  // The fake's device memory is host memory at the same address.
  [[nodiscard]] std::byte* on_gpu(u64 offset = 0) const {
    return reinterpret_cast<std::byte*>(memory.address()) + offset;
  }
  DeviceMemory memory;
  std::unique_ptr<Stream> stream;
};

/// New pageable memory that a test may free early. It lies far from where the kernel puts other memory, so that after its end
/// no thread gets its addresses, for its stack say, and makes them valid again.
struct Pages {
  explicit Pages(u64 size, int access = PROT_READ | PROT_WRITE) : bytes{size} {
    static std::atomic<u64> next{0x2000'0000'0000};
    void* wanted = reinterpret_cast<void*>(next.fetch_add((bytes + 4_MiB) / 2_MiB * 2_MiB));
    start = mmap(wanted, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(start != MAP_FAILED);
  }
  ~Pages() { free(); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void free() {
    if (start) munmap(start, bytes);
    start = nullptr;
  }
  [[nodiscard]] std::byte* at(u64 offset = 0) const { return static_cast<std::byte*>(start) + offset; }

  u64 bytes;
  void* start;
};

/// A stream whose work waits until the word is set: what is queued behind it stays queued.
struct Gate {
  explicit Gate(const Application& with) : word{the_driver(), 4096, 0} {
    std::memset(word.data(), 0, 4);
    LINKSCOPE_CU(the_driver(), cuStreamWaitValue32, with.stream->get(), reinterpret_cast<CUdeviceptr>(word.data()), 1,
                 CU_STREAM_WAIT_VALUE_EQ);
  }
  ~Gate() { open(); }
  void open() const { std::atomic_ref{*reinterpret_cast<unsigned*>(word.data())} = 1; }
  PinnedMemory word;
};

/// A function of the driver that the library does not use.
template <class Function>
Function driver_function(const char* name, int version) {
  void* found = nullptr;
  const auto get = reinterpret_cast<PFN_cuGetProcAddress_v12000>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2"));
  get(name, &found, version, 0, nullptr);
  return reinterpret_cast<Function>(found);
}

/// A capture of a stream's work in mode "global".
struct Capture {
  explicit Capture(CUstream captured) : stream{captured} {
    const auto begin = driver_function<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture", 10010);
    CHECK(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  }
  /// The graph, which the caller destroys.
  [[nodiscard]] CUgraph end() const {
    CUgraph graph = nullptr;
    const auto end_capture = driver_function<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture", 10000);
    CHECK(end_capture(stream, &graph) == CUDA_SUCCESS);
    return graph;
  }
  CUstream stream;
};

inline Bytes random_bytes(u64 count, u64 seed) {
  std::mt19937_64 random{seed};
  Bytes made(count + 8);
  for (u64 at = 0; at < count; at += 8) {
    const u64 word = random();
    std::memcpy(made.data() + at, &word, 8);
  }
  made.resize(count);
  return made;
}

inline bool same(const void* a, const void* b, u64 bytes) { return bytes == 0 || std::memcmp(a, b, bytes) == 0; }

inline CUcontext current_context() {
  CUcontext context = nullptr;
  LINKSCOPE_CU(the_driver(), cuCtxGetCurrent, &context);
  return context;
}

/// Whether the tests run their full campaigns.
inline bool is_long() {
  const char* mode = std::getenv("LINKSCOPE_TESTS");
  return mode && std::string{mode} == "long";
}

/// Whether the kernel says which pages this process may read and write.
inline bool says_access() { return PageAccess{}.first_refused(nullptr, 1, Access::read) == 0; }

/// Whether mincore says that no file is in the page cache (file_faults.cpp).
void pretend_nothing_cached(bool);
/// Lets each request of io_uring claim that it moved at most `moved` bytes, or ended with an error unless that is 0
/// (file_faults.cpp).
void pretend_uring_moved(std::int64_t moved, int error = 0);
/// Ends that, and counts anew.
void uring_tells_the_truth();
/// The most requests of io_uring that were in flight at once.
[[nodiscard]] u32 most_in_flight();

/// Options that divide small copies too, so that a test of a few MiB has many chunks, threads and slots.
inline Options small_chunks() {
  Options options;
  options.arena_bytes = 8_MiB;
  options.slot_bytes = 256_KiB;
  for (const auto id : {MethodId::ring_to_gpu, MethodId::ring_to_host, MethodId::ring_to_fresh})
    options.set_all(id, {false, 3, 256_KiB, 2, 8, 48_KiB}, 64_KiB);
  options.set_all(MethodId::host, {false, 3, 100_KiB, 1, 8, 0}, 64_KiB);
  return options;
}

/// The same, but a kernel moves the chunks, of which no more than five are in the ring.
inline Options small_chunks_by_kernel() {
  Options options = small_chunks();
  for (const auto id : {MethodId::ring_to_gpu, MethodId::ring_to_host})
    options.set_all(id, {false, 3, 256_KiB, 2, 8, 16_KiB, 2, 48_KiB}, 64_KiB);
  return options;
}

/// GPUs 1 to 3 help. Copies of a few MiB have many chunks.
inline Options with_helpers() {
  Options options = small_chunks();
  options.helpers = {1, 2, 3};
  for (const auto id : {MethodId::relay_to_gpu, MethodId::relay_to_host})
    options.set_all(id, {false, 2, 100_KiB, 1, 8, 0, 0, 1, 8}, 64_KiB);
  options.set_all(MethodId::between_gpus, {false, 1, 100_KiB, 3, 8, 0}, 64_KiB);
  return options;
}

/// The same, and pageable copies go over several links too.
inline Options with_links() {
  Options options = with_helpers();
  for (const auto id : {MethodId::ring_to_gpu, MethodId::ring_to_host, MethodId::ring_to_fresh})
    options.set_all(id, {false, 3, 256_KiB, 2, 8, 48_KiB, 0, 1, 8}, 64_KiB);
  return options;
}

/// The same, and kernels copy between memories of GPUs.
inline Options by_kernels(bool tma) {
  Options options = with_helpers();
  for (const auto id : {MethodId::within_gpu, MethodId::between_peers})
    options.set_all(id, {false, 1, 16_KiB, 1, 1, 0, 6, 4_KiB, 1, false, tma}, 64_KiB);
  return options;
}

/// Memory of the second GPU.
struct OnOther {
  explicit OnOther(const Application& with, u64 bytes) : owner{with} {
    const CurrentContext current{the_driver(), owner.other.context()};
    memory = {the_driver(), bytes};
  }
  ~OnOther() {
    const CurrentContext current{the_driver(), owner.other.context()};
    memory = {};
  }
  [[nodiscard]] std::byte* at(u64 offset = 0) const { return reinterpret_cast<std::byte*>(memory.address()) + offset; }
  const Application& owner;
  DeviceMemory memory;
};

}  // namespace linkscope
