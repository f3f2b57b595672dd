// Random copies are bit-exact and touch nothing else, by several threads at once and with errors in every call.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <thread>

#include "transfer_testing.hpp"

using namespace linkscope;

namespace {

constexpr u64 margin = 64;

/// A size from 0 B to `most`, mostly near a power of two.
u64 random_size(std::mt19937_64& random, u64 most) {
  const u64 exponent = random() % (1 + static_cast<u64>(std::bit_width(most)) - 1);
  const u64 near = (u64{1} << exponent) - 1 + random() % 3;
  return std::min(most, random() % 4 ? near : random() % (near + 1));
}

/// Whether the bytes around a copy keep their value.
bool margins_kept(const std::byte* start, u64 offset, u64 bytes) {
  const auto kept = [](std::byte one) { return one == std::byte{0x5A}; };
  return std::all_of(start, start + offset, kept) &&
         std::all_of(start + offset + bytes, start + bytes + 2 * margin, kept);
}

/// Where a round trip goes: from the source to the middle and back. Memory without an address is pageable, of each case.
struct Route {
  std::string name;
  Options options;
  std::byte *source, *middle, *back;
  std::vector<MethodId> methods;  // that must have made copies
  bool fresh = false;
};

/// Copies random data there and back between odd addresses. Returns whether all of it arrived.
bool round_trip(Transfers& transfers, const Route& route, CUstream stream, std::mt19937_64& random, u64 most) {
  const u64 bytes = random_size(random, most), from = random() % margin, at = random() % margin, to = random() % margin;
  auto sent = random_bytes(bytes, random());
  Bytes pageable(route.source ? 0 : bytes + from), pageable_back(route.back ? 0 : bytes + 2 * margin);
  std::byte *source = (route.source ? route.source : pageable.data()) + from,
            *back = route.back ? route.back : pageable_back.data();
  std::copy(sent.begin(), sent.end(), source);
  std::fill(back, back + bytes + 2 * margin, std::byte{0x5A});
  std::fill(route.middle, route.middle + bytes + 2 * margin, std::byte{0x5A});
  transfers.copy({route.middle + at, source, bytes, stream});
  if (route.source) LINKSCOPE_CU(the_driver(), cuStreamSynchronize, stream);
  std::fill(source, source + bytes, std::byte{0});
  transfers.copy({back + to, route.middle + at, bytes, stream, route.fresh});
  if (route.back) LINKSCOPE_CU(the_driver(), cuStreamSynchronize, stream);
  return same(back + to, sent.data(), bytes) && margins_kept(back, to, bytes) && margins_kept(route.middle, at, bytes);
}

/// Memory for all routes.
struct Everywhere {
  static constexpr u64 most = 64_MiB, space = most + 2 * margin;
  const Application with{2 * space};
  const PinnedMemory source{the_driver(), space, 0}, back{the_driver(), space, 0};
  const OnOther elsewhere{with, space};
  Bytes on_host = Bytes(space);

  [[nodiscard]] std::vector<Route> routes() {
    using enum MethodId;
    Options by_driver = small_chunks();
    by_driver.plain = true;
    std::byte* gpu = with.on_gpu();
    return {{"copy engine", small_chunks(), nullptr, gpu, nullptr, {ring_to_gpu, ring_to_host}},
            {"kernel", small_chunks_by_kernel(), nullptr, gpu, nullptr, {ring_to_gpu, ring_to_host}},
            {"fresh", small_chunks(), nullptr, gpu, nullptr, {ring_to_fresh}, true},
            {"several links", with_links(), nullptr, gpu, nullptr, {ring_to_gpu, ring_to_host}},
            {"fresh over several links", with_links(), nullptr, gpu, nullptr, {ring_to_fresh}, true},
            {"helpers", with_helpers(), source.data(), gpu, back.data(), {relay_to_gpu, relay_to_host}},
            {"between GPUs", with_helpers(), gpu, elsewhere.at(), gpu + space, {between_gpus}},
            {"host", small_chunks(), nullptr, on_host.data(), nullptr, {host}},
            {"plain", by_driver, nullptr, gpu, nullptr, {}}};
  }
};

}  // namespace

TEST_CASE("random copies by every method are bit-exact between any addresses") {
  Everywhere all;
  for (const auto& route : all.routes()) {
    CAPTURE(route.name);
    Transfers transfers{route.options};
    std::mt19937_64 random{20};
    const int cases = is_long() ? 10'000 : 40;
    int wrong = 0;
    for (int i = 0; i < cases; ++i)
      wrong += !round_trip(transfers, route, all.with.stream->get(), random, i % 20 ? 4_MiB : Everywhere::most);
    CHECK(wrong == 0);
    for (const auto id : route.methods) CHECK(transfers.count_of(id) > 0);
    CHECK(transfers.latest_fallback().empty());
    CHECK(transfers.arena_bytes() <= 8_MiB);
  }
}

TEST_CASE("copies by several threads at once on their own streams are bit-exact") {
  const Application with;
  for (const auto& options : {small_chunks(), small_chunks_by_kernel(), with_links()}) {
    Transfers transfers{options};
    std::atomic<int> wrong{0};
    {
      std::vector<std::jthread> threads;
      for (u64 t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
          with.gpu.use();
          const Stream own{the_driver()};
          const Route route{"", options, nullptr, with.on_gpu(t * 16_MiB), nullptr, {}};
          std::mt19937_64 random{30 + t};
          for (int i = 0; i < (is_long() ? 500 : 10); ++i)
            wrong += !round_trip(transfers, route, own.get(), random, 8_MiB);
          own.synchronize();
        });
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("copies over the same helpers by several threads at once are bit-exact") {
  const Application with;
  const OnOther elsewhere{with, 16_MiB};
  const PinnedMemory pinned{the_driver(), 32_MiB, 0};
  Transfers transfers{with_helpers()};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (u64 t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        with.gpu.use();
        const Stream own{the_driver()};
        std::byte *host = pinned.data() + t * 8_MiB, *gpu = with.on_gpu(t * 16_MiB);
        const Route relayed{"", {}, host, gpu, host + 4_MiB, {}},
            bounced{"", {}, gpu, elsewhere.at(t * 4_MiB), host, {}};
        std::mt19937_64 random{50 + t};
        for (int i = 0; i < (is_long() ? 500 : 10); ++i)
          wrong += !round_trip(transfers, i % 3 ? relayed : bounced, own.get(), random, 3_MiB);
      });
  }
  CHECK(wrong == 0);
  CHECK(transfers.count_of(MethodId::relay_to_gpu) > 0);
  CHECK(transfers.count_of(MethodId::between_gpus) > 0);
}

namespace {

/// Copies to the GPU and back while calls of one function fail, from its call `after` on, and once more when it works.
void copy_while_failing(const Options& options, const char* symbol, u64 after) {
  const Application with;
  Transfers transfers{options};
  const auto source = random_bytes(2_MiB, after);
  Bytes back(source.size());
  std::string there, home;
  {
    const Failing failing{symbol, after};
    there = error_of([&] { transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()}); });
    home = error_of([&] { transfers.copy({back.data(), with.on_gpu(), back.size(), with.stream->get()}); });
  }
  with.gpu.use();
  with.stream->synchronize();
  CHECK((!there.empty() || same(with.on_gpu(), source.data(), source.size())));
  CHECK((!there.empty() || !home.empty() || back == source));
  for (const auto& error : {there, home})
    CHECK((error.empty() || error.find("CUDA_ERROR_NOT_PERMITTED") != std::string::npos));
  transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
  transfers.copy({back.data(), with.on_gpu(), back.size(), with.stream->get()});
  CHECK(back == source);
}

}  // namespace

TEST_CASE("an error in any call of the driver ends in correct data or in a clear error, and leaks nothing") {
  const u64 held = fake().held();
  for (const char* symbol : {"cuMemcpyHtoDAsync",
                             "cuMemcpyDtoHAsync",
                             "cuMemcpyAsync",
                             "cuEventCreate",
                             "cuEventRecord",
                             "cuEventQuery",
                             "cuEventSynchronize",
                             "cuMemHostAlloc",
                             "cuMemFreeHost",
                             "cuPointerGetAttributes",
                             "cuStreamGetCtx",
                             "cuStreamIsCapturing",
                             "cuThreadExchangeStreamCaptureMode",
                             "cuCtxGetDevice",
                             "cuCtxGetCurrent",
                             "cuCtxSetCurrent",
                             "cuDevicePrimaryCtxRetain",
                             "cuStreamSynchronize",
                             "cuLaunchKernel",
                             "cuModuleLoadData",
                             "cuModuleGetFunction"}) {
    CAPTURE(symbol);
    for (const u64 after : {0, 1, 3, 8}) {
      CAPTURE(after);
      copy_while_failing(small_chunks(), symbol, after);
      copy_while_failing(small_chunks_by_kernel(), symbol, after);
    }
    if (std::string{symbol} != "cuMemFreeHost") CHECK(fake().held() == held);
  }
}

TEST_CASE("an error that sticks to the GPU is reported and not retried") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(2_MiB, 40);
  const Failing failing{"cuMemcpyHtoDAsync", 2, 1, CUDA_ERROR_ECC_UNCORRECTABLE};
  const auto error =
      error_of([&] { transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()}); });
  CHECK(error.find("CUDA_ERROR_ECC_UNCORRECTABLE") != std::string::npos);
}

TEST_CASE("an arena that cannot be pinned leaves copies to the driver and says why") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(2_MiB, 41);
  {
    const Failing failing{"cuMemHostAlloc", 0, ~0ull, CUDA_ERROR_OUT_OF_MEMORY};
    transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
  }
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), source.data(), source.size()));
  CHECK(transfers.latest_fallback().find("cuMemHostAlloc") != std::string::npos);
}
