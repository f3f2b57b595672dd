// Copies between memories of GPUs by kernels, and the default streams of both GPUs, on the fake driver.
#include <algorithm>

#include "transfer/hops.hpp"
#include "transfer_testing.hpp"

using namespace linkscope;

namespace {

/// Memory of the second GPU that the first one reaches.
struct OnPeer {
  explicit OnPeer(const Application& with, u64 bytes)
      : memory{the_driver(), with.other.facts().handle, with.gpu.facts().handle, bytes} {}
  [[nodiscard]] std::byte* at(u64 offset = 0) const { return reinterpret_cast<std::byte*>(memory.address()) + offset; }
  GrantedMemory memory;
};

}  // namespace

TEST_CASE("copies within a GPU and between peers are one launch, at any offsets") {
  const Application with;
  const OnPeer peer{with, 4_MiB};
  const auto data = random_bytes(1_MiB, 130);
  for (const bool tma : {false, true})
    for (const u64 skew : {0, 1, 4}) {
      CAPTURE(tma);
      CAPTURE(skew);
      Transfers transfers{by_kernels(tma)};
      for (auto* dst : {with.on_gpu(8_MiB + skew), peer.at(skew)}) {
        std::memcpy(with.on_gpu(3), data.data(), data.size());
        fake().fail(nullptr, 0, 0, 0);
        transfers.copy({dst, with.on_gpu(3), data.size(), with.stream->get()});
        transfers.copy({with.on_gpu(16_MiB + 3), dst, data.size(), with.stream->get()});
        with.stream->synchronize();
        CHECK(same(with.on_gpu(16_MiB + 3), data.data(), data.size()));
        CHECK(fake().calls("cuLaunchKernel") == 2);
        CHECK(fake().calls("cuMemcpyAsync") == 0);
      }
      CHECK(transfers.count_of(MethodId::within_gpu) == 2);
      CHECK(transfers.count_of(MethodId::between_peers) == 2);
      CHECK(transfers.latest_fallback().empty());
    }
}

TEST_CASE("before tuning the copy engine copies within a GPU and between peers") {
  const Application with;
  const OnPeer peer{with, 4_MiB};
  Transfers transfers{Options{}};
  for (const u64 start : size_classes) {
    CHECK_FALSE(transfers.options().uses(MethodId::within_gpu, start));
    CHECK_FALSE(transfers.options().uses(MethodId::between_peers, start));
  }
  CHECK(std::string{transfers.method_of({with.on_gpu(), with.on_gpu(8_MiB), 4_MiB, with.stream->get()})} == "plain");
  CHECK(std::string{transfers.method_of({with.on_gpu(), peer.at(), 4_MiB, with.stream->get()})} == "plain");
}

TEST_CASE("no kernel touches what its GPU does not reach or what is beyond an allocation, and none is captured") {
  const Application with;
  const OnOther elsewhere{with, 1_MiB};
  const OnPeer peer{with, 4_MiB};
  Transfers transfers{by_kernels(true)};
  const Stream on_other = [&] {
    const CurrentContext current{the_driver(), with.other.context()};
    return Stream{the_driver()};
  }();
  const auto method = [&](void* dst, const void* src, CUstream stream) {
    return std::string{transfers.method_of({dst, src, 1_MiB, stream})};
  };
  CHECK(method(with.on_gpu(), with.on_gpu(2_MiB), with.stream->get()) == "within_gpu");
  CHECK(method(with.on_gpu(), peer.at(), with.stream->get()) == "between_peers");
  CHECK(method(with.on_gpu(), peer.at(), on_other.get()) == "plain");  // that GPU does not reach the first one
  CHECK(method(with.on_gpu(), with.on_gpu(2_MiB), on_other.get()) == "plain");
  CHECK(method(with.on_gpu(), elsewhere.at(), with.stream->get()) == "between_gpus");
  fake().fail(nullptr, 0, 0, 0);
  const auto error = error_of([&] { transfers.copy({with.on_gpu(), with.on_gpu(79_MiB), 2_MiB, with.stream->get()}); });
  CHECK(error.find("ends after 1 MiB") != std::string::npos);
  const Capture capture{with.stream->get()};
  transfers.copy({with.on_gpu(), with.on_gpu(2_MiB), 1_MiB, with.stream->get()});
  the_driver().cuGraphDestroy(capture.end());
  CHECK(fake().calls("cuLaunchKernel") == 0);
}

TEST_CASE("a kernel that fails leaves the copy to the driver, which is said") {
  const Application with;
  const auto data = random_bytes(1_MiB, 131);
  for (const char* symbol : {"cuLaunchKernel", "cuModuleLoadData", "cuModuleGetFunction"}) {
    CAPTURE(symbol);
    Transfers transfers{by_kernels(true)};
    std::memcpy(with.on_gpu(), data.data(), data.size());
    std::memset(with.on_gpu(4_MiB), 0, data.size());
    const Failing failing{symbol};
    transfers.copy({with.on_gpu(4_MiB), with.on_gpu(), data.size(), with.stream->get()});
    with.stream->synchronize();
    CHECK(same(with.on_gpu(4_MiB), data.data(), data.size()));
    CHECK(transfers.latest_fallback().find("within_gpu: ") == 0);
  }
}

TEST_CASE("a prepared copy by a kernel is launched again at each run") {
  const Application with;
  Transfers transfers{by_kernels(false)};
  auto prepared = transfers.prepare({with.on_gpu(4_MiB), with.on_gpu(), 1_MiB, with.stream->get()});
  for (const u64 seed : {132, 133}) {
    const auto data = random_bytes(1_MiB, seed);
    std::memcpy(with.on_gpu(), data.data(), data.size());
    prepared.run();
    with.stream->synchronize();
    CHECK(same(with.on_gpu(4_MiB), data.data(), data.size()));
  }
  CHECK(transfers.count_of(MethodId::within_gpu) == 2);
}

namespace {

/// A stream of the GPU of a context whose work waits until the word is set.
struct DefaultStream {
  explicit DefaultStream(CUcontext of) : context{of}, word{the_driver(), 4096, 0} { std::memset(word.data(), 0, 4); }
  ~DefaultStream() { open(); }
  template <class Work>
  void on(Work work) const {
    const CurrentContext current{the_driver(), context};
    work();
  }
  void close() const {
    std::memset(word.data(), 0, 4);
    on([&] {
      LINKSCOPE_CU(the_driver(), cuStreamWaitValue32, nullptr, reinterpret_cast<CUdeviceptr>(word.data()), 1,
                   CU_STREAM_WAIT_VALUE_EQ);
    });
  }
  void open() const { std::atomic_ref{*reinterpret_cast<unsigned*>(word.data())} = 1; }
  void fill(std::byte* memory, std::byte value, u64 bytes) const {
    on([&] {
      LINKSCOPE_CU(the_driver(), cuMemsetD8Async, reinterpret_cast<CUdeviceptr>(memory),
                   static_cast<unsigned char>(value), bytes, nullptr);
    });
  }
  void finish() const {
    on([] { LINKSCOPE_CU(the_driver(), cuStreamSynchronize, nullptr); });
  }
  CUcontext context;
  PinnedMemory word;
};

bool all_are(const std::byte* memory, std::byte value, u64 bytes) {
  return std::all_of(memory, memory + bytes, [=](std::byte one) { return one == value; });
}

}  // namespace

TEST_CASE("a copy between two GPUs on a default stream waits for both GPUs, and their later work waits for it") {
  const Application with;
  const OnOther elsewhere{with, 2_MiB};
  const OnPeer peer{with, 2_MiB};
  Transfers transfers{by_kernels(false)};
  const DefaultStream here{with.gpu.context()}, there{with.other.context()};
  constexpr u64 bytes = 1_MiB;
  constexpr std::byte old{1}, written{2}, later{3};
  for (auto* source : {elsewhere.at(), peer.at()}) {
    auto prepared = transfers.prepare({with.on_gpu(), source, bytes, stream_of_memory});
    for (const bool is_prepared : {false, true}) {
      CAPTURE(is_prepared);
      std::fill(source, source + bytes, old);
      const auto copy = [&] {
        if (is_prepared) prepared.run();
        else transfers.copy({with.on_gpu(), source, bytes, stream_of_memory});
      };
      there.close();
      there.fill(source, written, bytes);
      copy();
      there.open();
      here.finish();
      CHECK(all_are(with.on_gpu(), written, bytes));
      here.close();
      copy();
      there.fill(source, later, bytes);
      here.open();
      here.finish();
      there.finish();
      CHECK(all_are(with.on_gpu(), written, bytes));
      CHECK(all_are(source, later, bytes));
    }
  }
  CHECK(transfers.count_of(MethodId::between_gpus) == 4);
  CHECK(transfers.count_of(MethodId::between_peers) == 4);
  CHECK(transfers.latest_fallback().empty());
}

TEST_CASE("a copy of 64 KiB or more from or to freed memory of a GPU is an error that says so") {
  const Application with;
  Bytes host(2_MiB, std::byte{1});
  const PinnedMemory pinned{the_driver(), 2_MiB, 0};
  for (const auto& options : {small_chunks(), by_kernels(false), Options{}}) {
    Transfers transfers{options};
    for (const u64 bytes : {64_KiB, 2_MiB}) {
      CAPTURE(bytes);
      DeviceMemory memory{the_driver(), 2_MiB};
      auto* freed = reinterpret_cast<std::byte*>(memory.address());
      memory.free();
      const auto refused = [&](void* dst, const void* src) {
        return error_of([&] { transfers.copy({dst, src, bytes, with.stream->get()}); });
      };
      for (std::byte* other : {host.data(), pinned.data(), with.on_gpu()}) {
        CHECK(refused(other, freed).find("the source is no memory that this process can read") == 0);
        CHECK(refused(freed, other).find("the destination is no memory that this process can write") == 0);
      }
    }
  }
}
