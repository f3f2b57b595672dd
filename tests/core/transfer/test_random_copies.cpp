// Random copies are bit-exact and touch nothing else, also with errors in every call.
#include "random_copies.hpp"

using namespace linkscope;

TEST_CASE("random copies by every method are bit-exact between any addresses") {
  const u64 longest = is_long() ? 256_MiB : Everywhere::most;
  Everywhere all{nullptr, longest};
  for (const auto& route : all.routes()) {
    CAPTURE(route.name);
    Transfers transfers{route.options};
    std::mt19937_64 random{20};
    const int cases = is_long() ? 10'000 : 40;
    int wrong = 0;
    for (int i = 0; i < cases; ++i)
      wrong += !round_trip(transfers, route, all.with.stream->get(), random,
                           i % 20    ? 4_MiB
                           : i % 200 ? Everywhere::most
                                     : longest);
    CHECK(wrong == 0);
    for (const auto id : route.methods) CHECK(transfers.count_of(id) > 0);
    CHECK(transfers.latest_fallback().empty());
    CHECK(transfers.arena_bytes() <= 8_MiB);
  }
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
  const Impatient impatient;
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
