// SHOC level 1, microbench (MB-4): products of square matrices by cuBLAS, of fp8 by cuBLASLt, and by our own kernel.
// An iteration is one product.
#include <string>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

u64 bytes_of_element(const std::string& element) {
  return element == "fp8" ? 1 : element == "bf16" || element == "f16" ? 2 : element == "f64" ? 8 : 4;
}

/// By the library: fp8 gives bf16. By our own kernel: f32.
Program build_gemm(const Case& c) {
  const auto element = c.param("element", "bf16");
  const bool own = c.benchmark == "gemm_floor";
  const u64 n = std::stoul(c.param("n", "4096")), bytes = n * n * bytes_of_element(element);
  const u64 result = own ? n * n * sizeof(float) : element == "fp8" ? 2 * bytes : bytes;
  const auto matrix = [&](u32 region) {
    const u64 all = region == 2 ? result : bytes;
    return Span{region, 0, all, all};
  };
  using enum Access::Dir;
  Program program;
  const Content numbers = element == "fp8" ? Content::bytes : Content::numbers;
  for (const Content content : {numbers, numbers, Content::poison})
    program.regions.push_back({c.src, c.src_memory, content == Content::poison ? result : bytes, content});
  Actor stream;
  stream.place = c.src;
  const double operations = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  stream.loop = {Opaque{own ? "tensor_gemm" : "cublas_gemm",
                        element,
                        {n, n, n},
                        {{matrix(0), read}, {matrix(1), read}, {matrix(2), write}},
                        operations}};
  program.actors = {std::move(stream)};
  program.flows = {{0, c.src, c.dst, c.src_memory, c.dst_memory, 0, true, operations}};
  return program;
}

}  // namespace

std::vector<Benchmark> gemms() {
  constexpr bool sized = false;
  const Param length{"n", {"4096", "1024", "2048", "8192", "16384"}, "rows and columns of each matrix"};
  const auto row = [&](const char* name, const char* summary, const char* source, Param element) {
    return Benchmark{name,
                     summary,
                     source,
                     Engine::sm,
                     PlaceKind::gpu,
                     PlaceKind::gpu,
                     Relation::same,
                     {{MemKind::device, MemKind::device}},
                     {std::move(element), length},
                     build_gemm,
                     sized,
                     Taken::by_name,
                     Role::computation};
  };
  return {row("gemm", "products of square matrices by cuBLAS or cuBLASLt", "SHOC level 1: GEMM",
              {"element",
               {"bf16", "f32", "f64", "tf32", "fp8", "f16"},
               "type of the elements; tf32: f32 that tensor cores multiply with 10 bits; fp8: e4m3, with sums in f32"}),
          row("gemm_floor", "the same on tensor cores by a plain kernel of our own (mma.sync), a floor for the library",
              "microbench: tensor cores",
              {"element", {"bf16", "f16", "tf32"}, "type of the elements; sums and results are f32"})};
}

}  // namespace linkscope
