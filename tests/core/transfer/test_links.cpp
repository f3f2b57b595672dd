// Copies over several GPUs' links, on the fake driver with four GPUs.
#include <cstdlib>

#include "transfer/hop.hpp"
#include "transfer/relay.hpp"
#include "transfer_testing.hpp"

using namespace linkscope;

namespace {

/// The driver reads it when it is loaded, in the first test.
[[maybe_unused]] const int four_gpus = setenv("FAKE_CUDA_GPUS", "4", 0);

/// Threads of a copy of pinned memory over several links.
Options with_threads(u32 threads) {
  Options options = with_helpers();
  options.set_all(MethodId::relay_to_gpu, {false, threads, 100_KiB, 1, 8, 0, 0, 1, 8}, 64_KiB);
  return options;
}

PinnedMemory pinned_copy(const Bytes& data) {
  PinnedMemory made{the_driver(), data.size(), 0};
  std::memcpy(made.data(), data.data(), data.size());
  return made;
}

}  // namespace

TEST_CASE("pinned memory goes to a GPU and back over the links of all helpers, and peer access is left alone") {
  const Application with;
  Transfers transfers{with_helpers()};
  const auto data = random_bytes(6_MiB + 13, 100);
  const auto source = pinned_copy(data);
  const PinnedMemory back{the_driver(), data.size(), 0};
  fake().fail(nullptr, 0, 0, 0);
  transfers.copy({with.on_gpu(3), source.data(), data.size(), with.stream->get()});
  transfers.copy({back.data(), with.on_gpu(3), data.size(), with.stream->get()});
  with.stream->synchronize();
  CHECK(same(with.on_gpu(3), data.data(), data.size()));
  CHECK(same(back.data(), data.data(), data.size()));
  CHECK(transfers.count_of(MethodId::relay_to_gpu) == 1);
  CHECK(transfers.count_of(MethodId::relay_to_host) == 1);
  CHECK(transfers.latest_fallback().empty());
  CHECK(fake().calls("cuMemCreate") == 6);  // of three helpers, for two directions
  CHECK(fake().calls("cuCtxEnablePeerAccess") == 0);
  CHECK(current_context() == with.gpu.context());
}

TEST_CASE("every link carries chunks of a copy") {
  const Application with;
  Transfers transfers{with_helpers()};
  const auto source = pinned_copy(random_bytes(6_MiB, 101));
  const Gate gate{with};  // no path becomes free: the rest is dealt out evenly
  fake().fail(nullptr, 0, 0, 0);
  transfers.copy({with.on_gpu(), source.data(), 6_MiB, with.stream->get()});
  // A quarter of the chunks goes directly, with one copy each; the others have two.
  const u64 copies = fake().calls("cuMemcpyAsync"), chunks = (6_MiB + 100_KiB - 1) / 100_KiB;
  CHECK(copies >= chunks + chunks * 70 / 100);
  CHECK(copies <= chunks + chunks * 80 / 100);
}

TEST_CASE("chunks of pinned memory may be twice as large as a slot of the arena") {
  const Application with;
  Options options = with_helpers();
  options.set_all(MethodId::relay_to_gpu, {false, 2, 512_KiB, 1, 1, 0, 0, 1, 8}, 64_KiB);
  Transfers transfers{options};
  const auto source = pinned_copy(random_bytes(6_MiB, 121));
  const Gate gate{with};
  fake().fail(nullptr, 0, 0, 0);
  transfers.copy({with.on_gpu(), source.data(), 6_MiB, with.stream->get()});
  CHECK(fake().calls("cuMemcpyAsync") <= 2 * 12);  // at most two for each of 12 chunks
}

TEST_CASE("pageable copies that a kernel would move alone go over all links if helpers may take part") {
  const Application with;
  const auto source = random_bytes(1_MiB, 102);
  for (const bool helped : {false, true}) {
    CAPTURE(helped);
    Options options = with_links();
    if (!helped) options.helpers = {};
    for (const u64 start : size_classes) {
      options.of(MethodId::ring_to_gpu, start).sm_blocks = 2;
      options.of(MethodId::ring_to_gpu, start).sm_chunk = 16_KiB;
    }
    Transfers transfers{options};
    fake().fail(nullptr, 0, 0, 0);
    transfers.copy({with.on_gpu(), source.data(), 1_MiB, with.stream->get()});
    with.stream->synchronize();
    CHECK(fake().calls("cuLaunchKernel") == (helped ? 0 : 1));
    CHECK((fake().calls("cuMemcpyAsync") > 0) == helped);
    CHECK(same(with.on_gpu(), source.data(), 1_MiB));
  }
}

TEST_CASE("without leave, for small copies and for GPUs that have no stream here, no helper takes part") {
  const Application with;
  const OnOther elsewhere{with, 1_MiB};
  const PinnedMemory pinned{the_driver(), 1_MiB, 0};
  Options options = with_helpers();
  const auto method = [&](void* dst, const void* src, u64 bytes = 1_MiB) {
    Transfers transfers{options};
    return std::string{transfers.method_of({dst, src, bytes, with.stream->get()})};
  };
  CHECK(method(with.on_gpu(), pinned.data()) == "relay_to_gpu");
  CHECK(method(pinned.data(), with.on_gpu()) == "relay_to_host");
  CHECK(method(with.on_gpu(), pinned.data(), 32_KiB) == "plain");
  CHECK(method(elsewhere.at(), pinned.data()) == "plain");
  options.helpers = {0};
  CHECK(method(with.on_gpu(), pinned.data()) == "plain");
  options.helpers = {};
  CHECK(method(with.on_gpu(), pinned.data()) == "plain");
  options.helpers = {1};
  const Failing failing{"cuDeviceCanAccessPeer"};
  CHECK(method(with.on_gpu(), pinned.data()) == "plain");
}

TEST_CASE("a helper that does not exist is refused") {
  const Application with;
  Transfers transfers{small_chunks()};
  CHECK(error_of([&] { transfers.set_helpers({1, 4}); }) == "helper gpu:4 is not here; this process sees 4 GPUs");
  transfers.set_helpers({3});
  CHECK(transfers.options().helpers == std::vector<u32>{3});
}

TEST_CASE("pageable memory goes through the ring over several links") {
  const Application with;
  Transfers transfers{with_links()};
  auto source = random_bytes(6_MiB + 5, 102);
  const auto kept = source;
  Bytes back(source.size());
  fake().fail(nullptr, 0, 0, 0);
  transfers.copy({with.on_gpu(1), source.data(), source.size(), with.stream->get()});
  std::fill(source.begin(), source.end(), std::byte{0});
  transfers.copy({back.data(), with.on_gpu(1), back.size(), with.stream->get()});
  CHECK(back == kept);
  CHECK(fake().calls("cuMemCreate") == 6);
  CHECK(transfers.count_of(MethodId::ring_to_gpu) == 1);
  CHECK(transfers.count_of(MethodId::ring_to_host) + transfers.count_of(MethodId::ring_to_fresh) == 1);
  CHECK(transfers.latest_fallback().empty());
}

TEST_CASE("a helper without free memory takes no part, and pageable copies still go through the ring") {
  const Application with;
  Transfers transfers{with_links()};
  const auto data = random_bytes(2_MiB, 113);
  const auto source = pinned_copy(data);
  const Failing failing{"cuMemCreate", 0, ~0ull, CUDA_ERROR_OUT_OF_MEMORY};
  transfers.copy({with.on_gpu(), data.data(), data.size(), with.stream->get()});
  transfers.copy({with.on_gpu(4_MiB), source.data(), data.size(), with.stream->get()});
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), data.data(), data.size()));
  CHECK(same(with.on_gpu(4_MiB), data.data(), data.size()));
  CHECK(transfers.count_of(MethodId::ring_to_gpu) == 1);
  CHECK(transfers.latest_fallback().empty());
}

TEST_CASE("copies over several links keep the order of the stream, and return while earlier work waits") {
  const Application with;
  Transfers transfers{with_helpers()};
  const auto first = random_bytes(3_MiB, 103), second = random_bytes(3_MiB, 104);
  const auto source = pinned_copy(first), other_source = pinned_copy(second);
  const PinnedMemory back{the_driver(), 3_MiB, 0}, last{the_driver(), 3_MiB, 0};
  {
    const Gate gate{with};
    LINKSCOPE_CU(the_driver(), cuMemsetD8Async, with.memory.address(), 1, 3_MiB, with.stream->get());
    transfers.copy({with.on_gpu(), source.data(), 3_MiB, with.stream->get()});
    transfers.copy({back.data(), with.on_gpu(), 3_MiB, with.stream->get()});
    transfers.copy({with.on_gpu(), other_source.data(), 3_MiB, with.stream->get()});
    LINKSCOPE_CU(the_driver(), cuMemcpyAsync, reinterpret_cast<CUdeviceptr>(last.data()), with.memory.address(), 3_MiB,
                 with.stream->get());
    CHECK_FALSE(same(with.on_gpu(), first.data(), 100));
  }
  with.stream->synchronize();
  CHECK(same(back.data(), first.data(), first.size()));
  CHECK(same(last.data(), second.data(), second.size()));
  CHECK(transfers.count_of(MethodId::relay_to_gpu) == 2);
}

TEST_CASE("a copy does not wait for another stream whose copy holds the helpers") {
  const Application with;
  Transfers transfers{with_helpers()};
  const OnOther elsewhere{with, 2_MiB};
  const Stream free_stream{the_driver()};
  const auto first = random_bytes(2_MiB, 105), second = random_bytes(2_MiB, 106);
  const auto source = pinned_copy(first), other_source = pinned_copy(second);
  {
    const Gate gate{with};
    transfers.copy({with.on_gpu(), source.data(), 2_MiB, with.stream->get()});
    transfers.copy({elsewhere.at(), with.on_gpu(), 2_MiB, with.stream->get()});
    transfers.copy({with.on_gpu(4_MiB), other_source.data(), 2_MiB, free_stream.get()});
    transfers.copy({elsewhere.at(), with.on_gpu(4_MiB), 2_MiB, free_stream.get()});
    free_stream.synchronize();
    CHECK(same(with.on_gpu(4_MiB), second.data(), second.size()));
    CHECK(same(elsewhere.at(), second.data(), second.size()));
    CHECK(transfers.latest_fallback() == "between_gpus: a copy of another stream uses the ring between these GPUs");
  }
  with.stream->synchronize();
  CHECK(same(elsewhere.at(), first.data(), first.size()));
}

TEST_CASE("a copy between GPUs without peer access goes through pinned slots, in the order of any of their streams") {
  const Application with;
  Transfers transfers{with_helpers()};
  const OnOther elsewhere{with, 4_MiB};
  const auto stream_there = [&] {
    const CurrentContext current{the_driver(), with.other.context()};
    return std::make_unique<Stream>(the_driver());
  }();
  const auto data = random_bytes(3_MiB + 7, 107);
  for (const auto* stream : {with.stream.get(), stream_there.get()}) {
    std::memcpy(with.on_gpu(), data.data(), data.size());
    transfers.copy({elsewhere.at(5), with.on_gpu(), data.size(), stream->get()});
    LINKSCOPE_CU(the_driver(), cuMemsetD8Async, with.memory.address(), 0, 4_MiB, stream->get());
    transfers.copy({with.on_gpu(8_MiB), elsewhere.at(5), data.size(), stream->get()});
    stream->synchronize();
    for (const auto* gpu : {&with.gpu, &with.other}) {  // the events of the slots come after what the stream waits for
      const CurrentContext current{the_driver(), gpu->context()};
      LINKSCOPE_CU(the_driver(), cuCtxSynchronize);
    }
    CHECK(same(elsewhere.at(5), data.data(), data.size()));
    CHECK(same(with.on_gpu(8_MiB), data.data(), data.size()));
  }
  CHECK(transfers.count_of(MethodId::between_gpus) == 4);
  CHECK(transfers.latest_fallback().empty());
  CHECK(transfers.arena_bytes() <= 3 * 256_KiB * 2);
}

TEST_CASE("between GPUs without peer access, copies of 16 MiB and more leave the driver, and shorter ones stay") {
  // Four H100s: through pinned slots, 4 MiB took 6 and 50 % longer than by the driver, and 16 MiB 3 and 13 % less time.
  const Application with;
  Transfers transfers;
  const OnOther elsewhere{with, 16_MiB};
  const auto method = [&](u64 bytes) {
    return std::string{transfers.method_of({elsewhere.at(), with.on_gpu(), bytes, with.stream->get()})};
  };
  CHECK(method(16_MiB - 1) == "plain");
  CHECK(method(16_MiB) == "between_gpus");
}

TEST_CASE("with peer access the driver copies between GPUs") {
  const Application with;
  Transfers transfers{with_helpers()};
  const OnOther elsewhere{with, 1_MiB};
  const auto method = [&] {
    return std::string{transfers.method_of({elsewhere.at(), with.on_gpu(), 1_MiB, with.stream->get()})};
  };
  CHECK(method() == "between_gpus");
  LINKSCOPE_CU(the_driver(), cuCtxEnablePeerAccess, with.other.context(), 0);
  CHECK(method() == "plain");
  LINKSCOPE_CU(the_driver(), cuCtxDisablePeerAccess, with.other.context());
  CHECK(method() == "between_gpus");
}

TEST_CASE(
    "captured copies are nodes of the graph, and a capture elsewhere does not disturb copies over several links") {
  const Application with;
  Transfers transfers{with_helpers()};
  const OnOther elsewhere{with, 1_MiB};
  const Stream other{the_driver()};
  const auto data = random_bytes(1_MiB, 111), more = random_bytes(1_MiB, 112);
  const auto source = pinned_copy(data), other_source = pinned_copy(more);
  const Capture capture{with.stream->get()};
  transfers.copy({with.on_gpu(), source.data(), 1_MiB, with.stream->get()});
  transfers.copy({elsewhere.at(), with.on_gpu(), 1_MiB, with.stream->get()});
  transfers.copy({with.on_gpu(4_MiB), other_source.data(), 1_MiB, other.get()});
  const CUgraph graph = capture.end();
  other.synchronize();
  CHECK(same(with.on_gpu(4_MiB), more.data(), more.size()));
  CHECK(transfers.count_of(MethodId::relay_to_gpu) == 1);
  CHECK(transfers.count_of(MethodId::between_gpus) == 0);
  {
    const ReadyGraph ready{the_driver(), graph};
    LINKSCOPE_CU(the_driver(), cuGraphLaunch, ready.get(), with.stream->get());
    with.stream->synchronize();
  }
  CHECK(same(elsewhere.at(), data.data(), data.size()));
  CHECK(transfers.latest_fallback().empty());
  the_driver().cuGraphDestroy(graph);
}

TEST_CASE("a cancelled copy over several links ends early") {
  const Application with;
  const auto source = pinned_copy(random_bytes(2_MiB, 108));
  const OnOther elsewhere{with, 2_MiB};
  for (const u32 threads : {1u, 2u})
    for (void* dst : {static_cast<void*>(with.on_gpu()), static_cast<void*>(elsewhere.at())}) {
      CAPTURE(threads);
      Transfers transfers{with_threads(threads)};
      const void* src = dst == elsewhere.at() ? with.on_gpu() : source.data();
      Progress progress;
      progress.report = [&](u64) { progress.cancelled = true; };
      const auto error = error_of([&] { transfers.copy_large({dst, src, 2_MiB, with.stream->get()}, progress); });
      CHECK((error.find("cancelled") != std::string::npos) == (progress.done < 2_MiB));
      // Only the calling thread reports. While it does not run, the second thread may move all chunks.
      if (threads == 1) CHECK(progress.done < 2_MiB);
    }
}

namespace {

/// Round trips of the methods over several links: pinned and pageable memory, and another GPU. Returns the first error.
struct Trips {
  const Application with;
  const OnOther elsewhere{with, 1_MiB};
  const PinnedMemory pinned{the_driver(), 1_MiB, 0};
  const Bytes data = random_bytes(1_MiB, 109);
  Bytes pageable = Bytes(1_MiB);

  std::string go(Transfers& transfers) {
    const auto copied = [&](void* dst, const void* src) {
      return error_of([&] { transfers.copy({dst, src, data.size(), with.stream->get()}); });
    };
    std::memcpy(pinned.data(), data.data(), data.size());
    std::memset(with.on_gpu(), 0, data.size());
    if (auto error = copied(with.on_gpu(), pinned.data()); !error.empty()) return error;
    if (auto error = copied(elsewhere.at(), with.on_gpu()); !error.empty()) return error;
    if (auto error = copied(with.on_gpu(1_MiB), elsewhere.at()); !error.empty()) return error;
    if (auto error = copied(pageable.data(), with.on_gpu(1_MiB)); !error.empty()) return error;
    if (auto error = copied(with.on_gpu(2_MiB), pageable.data()); !error.empty()) return error;
    return copied(pinned.data(), with.on_gpu(2_MiB));
  }
  [[nodiscard]] bool arrived() const {
    return same(with.on_gpu(), data.data(), data.size()) && same(elsewhere.at(), data.data(), data.size()) &&
           same(pageable.data(), data.data(), data.size()) && same(pinned.data(), data.data(), data.size());
  }
};

void travel_while_failing(const char* symbol, u64 after) {
  Trips trips;
  Transfers transfers{with_links()};
  const auto error = [&] {
    const Failing failing{symbol, after};
    return trips.go(transfers);
  }();
  trips.with.gpu.use();
  trips.with.stream->synchronize();
  CHECK((error.empty() || error.find("CUDA_ERROR_NOT_PERMITTED") != std::string::npos));
  CHECK((!error.empty() || trips.arrived()));
  CHECK(trips.go(transfers).empty());
  trips.with.stream->synchronize();
  CHECK(trips.arrived());
}

}  // namespace

TEST_CASE("an error in any call of a copy over several links ends in correct data or a clear error, without a leak") {
  const u64 held = fake().held();
  for (const char* symbol : {"cuMemcpyAsync",
                             "cuEventCreate",
                             "cuEventRecord",
                             "cuEventQuery",
                             "cuStreamWaitEvent",
                             "cuStreamCreate",
                             "cuStreamSynchronize",
                             "cuMemHostAlloc",
                             "cuMemGetAllocationGranularity",
                             "cuMemCreate",
                             "cuMemAddressReserve",
                             "cuMemMap",
                             "cuMemSetAccess",
                             "cuDeviceCanAccessPeer",
                             "cuPointerGetAttributes",
                             "cuStreamGetCtx",
                             "cuStreamIsCapturing",
                             "cuCtxGetCurrent",
                             "cuCtxSetCurrent",
                             "cuThreadExchangeStreamCaptureMode",
                             "cuDevicePrimaryCtxRetain"}) {
    CAPTURE(symbol);
    for (const u64 after : {0, 1, 4, 17, 50}) {
      CAPTURE(after);
      travel_while_failing(symbol, after);
    }
    CHECK(fake().held() == held);
  }
}

TEST_CASE("if the driver cannot wait for the parts of a copy that ended early, the process is lost") {
  const Application with;
  Transfers transfers{with_threads(1)};  // of several, the one that reports may move no chunk
  const auto source = pinned_copy(random_bytes(2_MiB, 110));
  Progress progress;
  progress.report = [&](u64 done) { progress.cancelled = done > 500_KiB; };
  const OnOther elsewhere{with, 2_MiB};
  for (std::byte* dst : {with.on_gpu(), elsewhere.at()}) {
    const void* src = dst == elsewhere.at() ? with.on_gpu() : source.data();
    const Failing failing{"cuStreamSynchronize"};
    const auto error = error_of([&] { transfers.copy_large({dst, src, 2_MiB, with.stream->get()}, progress); });
    CHECK(error.find("the driver cannot wait for its parts") != std::string::npos);
    progress.cancelled = false;
  }
  with.gpu.use();
  LINKSCOPE_CU(the_driver(), cuCtxSynchronize);  // the parts that nobody waited for still use the memory of this GPU
  const auto method = transfers.method_of({with.on_gpu(), source.data(), 2_MiB, with.stream->get()});
  CHECK(std::string{method} == "relay_to_gpu");
  transfers.copy({with.on_gpu(), source.data(), 2_MiB, with.stream->get()});  // without the helpers that are in doubt
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), source.data(), 2_MiB));
}

TEST_CASE("chunks of a copy over several links become smaller towards its end, and cover it once") {
  for (const u64 bytes : {u64{1}, 16_MiB, 256_MiB + 13, 1024_MiB}) {
    CAPTURE(bytes);
    const auto chunks = tapered(bytes, 8_MiB, 4);
    u64 at = 0;
    for (const auto& chunk : chunks) {
      CHECK(chunk.at == at);
      at += chunk.bytes;
    }
    CHECK(at == bytes);
    CHECK(
        std::is_sorted(chunks.rbegin(), chunks.rend(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; }));
    CHECK(chunks.front().bytes == std::min(bytes, bytes <= 16_MiB ? 2_MiB : 8_MiB));
    CHECK(chunks.back().bytes <= 1_MiB);
  }
  CHECK(tapered(6_MiB, 100_KiB, 4).size() == 62);  // all alike but the last
}

TEST_CASE("the ring of a pageable copy over several links stays in a quarter of the last-level cache") {
  CHECK(chunk_in_cache(2_MiB, 20, 300_MiB) == 2_MiB);  // 75 MiB fit 37 slots of 2 MiB
  CHECK(chunk_in_cache(2_MiB, 48, 300_MiB) == 1_MiB + 512_KiB);
  CHECK(chunk_in_cache(2_MiB, 64, 300_MiB) == 1_MiB);
  CHECK(chunk_in_cache(4_MiB, 200, 300_MiB) == 1_MiB);
  CHECK(chunk_in_cache(256_KiB, 200, 300_MiB) == 256_KiB);
  CHECK(chunk_in_cache(2_MiB, 64, 0) == 2_MiB);  // the system does not say
}

TEST_CASE("a chunk waits for its slot on the GPU only while the slot is in use") {
  const Application with;
  Hop hop{the_driver(), {0, with.gpu.context()}, {1, with.other.context()}, 2};
  const auto source = pinned_copy(random_bytes(64_KiB, 120));
  const OnOther slots{with, 128_KiB};
  const auto first = reinterpret_cast<CUdeviceptr>(slots.at());
  hop.use({first, first + 64_KiB});
  const auto queue = [&] {
    hop.queue(reinterpret_cast<CUdeviceptr>(with.on_gpu()), reinterpret_cast<CUdeviceptr>(source.data()), 64_KiB);
  };
  for (int i = 0; i < 2; ++i) queue();
  CHECK(hop.finish());
  fake().fail(nullptr, 0, 0, 0);
  for (int i = 0; i < 2; ++i) queue();
  CHECK(fake().calls("cuStreamWaitEvent") == 2);  // of the second legs
  CHECK(hop.finish());
}
