// Computations with their transfers on the cuda platform, with the fake driver and its libraries.
#include <cstdlib>
#include <limits>

#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"
#include "platform/cuda/contents.hpp"
#include "platform/cuda/lu.hpp"

using namespace linkscope;

namespace {

std::vector<Case> small_computations() {
  std::vector<Case> all;
  for (const auto& row : benchmarks()) {
    if (!row.name.starts_with("compute_")) continue;
    const Place src = row.src == PlaceKind::gpu ? gpu(0) : numa(0);
    for (const auto& [from, to] : row.memories)
      all.push_back({std::string{row.name}, row.engine, src, gpu(0), from, to, 0, 0, {{"size", "small"}}});
  }
  return all;
}

void check_right(const Case& c) {
  const auto program = build_program(c);
  const auto support = platform().supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = platform().prepare(program, "test#0");
  const auto trace = platform().run(*session, {1, {{2}}, true});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  CHECK(trace.verdict->checked_bytes > 0);
}

}  // namespace

TEST_CASE("every computation delivers what its reference says, alone and with its transfers") {
  const auto cases = small_computations();
  CHECK(cases.size() == 15 * 3);
  for (const auto& c : cases) {
    CAPTURE(c.benchmark);
    check_right(c);
  }
}

namespace {

Case product_of(const char* benchmark, const char* element) {
  return {benchmark,
          Engine::sm,
          gpu(0),
          gpu(0),
          MemKind::device,
          MemKind::device,
          0,
          0,
          {{"element", element}, {"n", "1024"}}};
}

}  // namespace

TEST_CASE("products of every element, by libraries and by our own kernel, are compared with a reference") {
  for (const char* element : {"f32", "f64", "bf16", "f16", "tf32", "fp8"}) {
    CAPTURE(element);
    check_right(product_of("gemm", element));
  }
  for (const char* element : {"bf16", "f16", "tf32"}) {
    CAPTURE(element);
    check_right(product_of("gemm_floor", element));
  }
}

TEST_CASE("our own products take three elements and whole tiles") {
  auto program = build_program(product_of("gemm_floor", "bf16"));
  auto& call = std::get<Opaque>(program.actors[0].loop[0]);
  call.shape = {1024, 1024, 64};
  for (auto& access : call.traffic)
    if (access.dir == Access::Dir::read) access.span.bytes = 2 * 1024 * 64;
  CHECK(platform().supports(program).why_not == "tensor_gemm takes lengths that are multiples of 128");
  call.element = "f32";
  CHECK(platform().supports(program).why_not == "tensor_gemm multiplies bf16, f16 and tf32, and not 'f32'");
}

TEST_CASE("operations of neural networks by cuDNN are compared with a reference") {
  const auto operation = [](const char* benchmark, const char* element, const char* name, const char* value) {
    return Case{benchmark,
                Engine::sm,
                gpu(0),
                gpu(0),
                MemKind::device,
                MemKind::device,
                0,
                0,
                {{"element", element}, {name, value}}};
  };
  check_right(operation("convolution", "f16", "channels", "64"));
  check_right(operation("attention", "bf16", "length", "512"));
  check_right(operation("softmax", "f32", "length", "1024"));
}

TEST_CASE("a cuDNN without the operation, or without an engine for this GPU, is a reason") {
  const auto why = [](const char* benchmark, const char* variable) {
    const auto program =
        build_program({benchmark, Engine::sm, gpu(0), gpu(0), MemKind::device, MemKind::device, 0, 0, {}});
    setenv(variable, "1", 1);
    std::string found;
    try {
      (void)platform().prepare(program, "test#0");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::unsupported);
      found = error.what();
    }
    unsetenv(variable);
    return found;
  };
  CHECK(why("attention", "FAKE_CUDNN_NO_ATTENTION") == "this cuDNN has no attention as one operation (cuDNN 9.13 has)");
  CHECK(why("convolution", "FAKE_CUDNN_NO_ENGINE") == "cuDNN has no convolution of these lengths for this GPU");
}

TEST_CASE("operations by cuDNN take their lengths, their elements and whole arrays") {
  auto program = build_program({"softmax", Engine::sm, gpu(0), gpu(0), MemKind::device, MemKind::device, 0, 0, {}});
  auto& call = std::get<Opaque>(program.actors[0].loop[0]);
  const auto why = [&] { return platform().supports(program).why_not; };
  call.traffic[0].span.bytes /= 2;
  CHECK(why() == "cudnn_softmax reads its arrays and writes the last one, of these lengths");
  call.shape = {4};
  CHECK(why() == "cudnn_softmax has 2 lengths");
  call.element = "f64";
  CHECK(why() == "cudnn_softmax computes with f32, f16 and bf16, and not 'f64'");
}

TEST_CASE("fp8 needs lengths of whole vectors, and a GPU for which cuBLASLt has a product") {
  auto program = build_program({"gemm",
                                Engine::sm,
                                gpu(0),
                                gpu(0),
                                MemKind::device,
                                MemKind::device,
                                0,
                                0,
                                {{"element", "fp8"}, {"n", "1024"}}});
  setenv("FAKE_CUBLASLT_NO_FP8", "1", 1);
  std::string why;
  try {
    (void)platform().prepare(program, "test#0");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    why = error.what();
  }
  unsetenv("FAKE_CUBLASLT_NO_FP8");
  CHECK(why == "cuBLASLt has no product of fp8 (e4m3) of these lengths for this GPU");
  auto& call = std::get<Opaque>(program.actors[0].loop[0]);
  call.shape = {8, 8, 8};
  const u64 bytes = 64;
  for (auto& access : call.traffic) access.span.bytes = access.dir == Access::Dir::write ? 2 * bytes : bytes;
  CHECK(platform().supports(program).why_not == "cublas_gemm of fp8 takes lengths that are multiples of 16");
}

TEST_CASE("a blocked LU with look-ahead has the residual of a factorization") {
  const auto program =
      build_program({"lu", Engine::sm, gpu(0), gpu(0), MemKind::device, MemKind::device, 0, 0, {{"n", "256"}}});
  const auto support = platform().supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = platform().prepare(program, "test#0");
  const auto trace = platform().run(*session, {1, {{2}}, true});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  CHECK(trace.verdict->checked_bytes == 256 * 256 * 8);
}

TEST_CASE("ranks of an LU update bring every tile to their GPUs and back, with and without look-ahead") {
  for (const char* slots : {"1", "2"}) {
    const auto program = build_program({"lu_update",
                                        Engine::sm,
                                        gpu(0),
                                        gpu(0),
                                        MemKind::device,
                                        MemKind::device,
                                        0,
                                        0,
                                        {{"nodes", "00"}, {"slots", slots}, {"size", "small"}}});
    const auto support = platform().supports(program);
    REQUIRE_MESSAGE(support, support.why_not);
    const auto session = platform().prepare(program, "test#0");
    const auto trace = platform().run(*session, {1, {std::vector<u32>(6, 5)}, true});
    CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
    CHECK(trace.verdict->checked_bytes >= 6 * 128 * 128 * 8);
  }
}

TEST_CASE("a result and its copy differ in as many bytes as are wrong, in whichever part of large memory") {
  std::vector<std::byte> result(20 << 20, std::byte{7}), copy = result;
  CHECK(difference(copy, result).wrong == 0);
  for (const std::size_t at : {std::size_t{3}, std::size_t{9} << 20, copy.size() - 1}) copy[at] = std::byte{8};
  CHECK(difference(copy, result).wrong == 3);
  CHECK(difference(copy, result).first == 3);
  copy[3] = result[3];
  CHECK(difference(copy, result).first == 9 << 20);
  CHECK(difference({copy.data() + copy.size() - 5, 5}, {result.data(), 5}).first == 4);
}

TEST_CASE("factors with a wrong element exceed the residual that rounding leaves") {
  const u64 n = 64, seed = 5 | numbers_seed;
  std::vector<double> at(n * n);
  const FactoredColumns all{0, {seed, 0}, at};
  for (u64 i = 0; i < n * n; ++i) at[i] = all.matrix.at<double>(i) + (i % (n + 1) ? 0 : diagonal_of(n));
  for (u64 k = 0; k < n; ++k)
    for (u64 row = k + 1; row < n; ++row) {
      at[k * n + row] /= at[k * n + k];
      for (u64 column = k + 1; column < n; ++column) at[column * n + row] -= at[k * n + row] * at[column * n + k];
    }
  CHECK(scaled_residual(n, {all}) < largest_residual);
  at[7 * n + 5] += 1e-6;
  CHECK(scaled_residual(n, {all}) > largest_residual);
  // A factor that is not a number must not count as no difference.
  at[7] = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(scaled_residual(n, {all}) <= largest_residual);
}

TEST_CASE("an LU over GPUs has the residual of a factorization, whichever GPUs and however they take panels") {
  for (const char* gpus : {"0", "1", "01"})
    for (const char* by : {"peer", "host"}) {
      const char* panels = *by == 'p' ? "urgent" : "usual";
      CAPTURE(gpus);
      CAPTURE(by);
      const auto program = build_program({"lu_gpus",
                                          Engine::sm,
                                          gpu(0),
                                          gpu(0),
                                          MemKind::device,
                                          MemKind::device,
                                          0,
                                          0,
                                          {{"gpus", gpus}, {"by", by}, {"panels", panels}, {"n", "256"}}});
      const auto support = platform().supports(program);
      REQUIRE_MESSAGE(support, support.why_not);
      const auto session = platform().prepare(program, "test#0");
      const u64 ranks = std::string{gpus}.size();
      const auto trace = platform().run(*session, {1, {std::vector<u32>(3 * ranks, 3)}, true});
      CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
      CHECK(trace.verdict->checked_bytes >= 2 * 256 * 256 * 8);  // factors, and factors as stored
    }
}

TEST_CASE("a computation whose lengths do not fit is refused with a reason") {
  const auto refused = [](const char* benchmark, auto change, const char* words) {
    auto program = build_program(
        {benchmark, Engine::sm, gpu(0), gpu(0), MemKind::device, MemKind::device, 0, 0, {{"size", "small"}}});
    change(std::get<Opaque>(program.actors[0].loop[0]));
    const auto support = platform().supports(program);
    CHECK_MESSAGE(support.why_not.find(words) != std::string::npos, support.why_not);
  };
  refused("compute_scan", [](Opaque& o) { o.shape = {}; }, "has 1 lengths and 3 arrays");
  refused("compute_triad", [](Opaque& o) { o.shape[0] = 7; }, "in fours");
  refused("compute_stencil", [](Opaque& o) { o.shape[1] = 3; }, "even number of steps");
  refused("compute_md", [](Opaque& o) { o.element = "bf16"; }, "in f32 and f64, and not in 'bf16'");
  const auto lu = [&](auto change, const char* words) {
    auto program =
        build_program({"lu", Engine::sm, gpu(0), gpu(0), MemKind::device, MemKind::device, 0, 0, {{"n", "256"}}});
    change(std::get<Opaque>(program.actors[0].loop[0]));
    const auto support = platform().supports(program);
    CHECK_MESSAGE(support.why_not.find(words) != std::string::npos, support.why_not);
  };
  lu([](Opaque& o) { o.element = "f32"; }, "factors f64");
  lu([](Opaque& o) { o.shape[1] = 96; }, "at most 64");
  lu([](Opaque& o) { o.shape[0] = 512; }, "and writes as many");
  const auto part = [&](auto change, const char* words) {
    auto program =
        build_program({"lu_gpus", Engine::sm, gpu(0), gpu(0), MemKind::device, MemKind::device, 0, 0, {{"n", "256"}}});
    for (auto& step : program.actors[1].loop)
      if (auto* panel = std::get_if<Opaque>(&step)) change(*panel);
    const auto support = platform().supports(program);
    CHECK_MESSAGE(support.why_not.find(words) != std::string::npos, support.why_not);
  };
  part([](Opaque& o) { o.element = "f32"; }, "lu_panel factors f64");
  part([](Opaque& o) { o.shape = {256}; }, "lu_panel takes three lengths");
  part([](Opaque& o) { o.shape[1] = 96; }, "divide its order");
  part([](Opaque& o) { o.shape[1] = 128; }, "accesses whole columns of 2 KiB");
  refused("compute_fft", [](Opaque& o) { o.element = "bf16"; }, "transforms f32 and f64");
  refused("compute_fft", [](Opaque& o) { o.shape = {512}; }, "two lengths");
  refused("compute_fft", [](Opaque& o) { o.shape[1] += 1; }, "and writes as many");
}
