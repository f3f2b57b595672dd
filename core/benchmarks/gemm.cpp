// SHOC level 1, microbench (MB-4): products of square matrices by cuBLAS, and of fp8 by cuBLASLt. An iteration is one
// product.
#include <string>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build(const Case& c) {
  const auto element = c.param("element", "bf16");
  const bool fp8 = element == "fp8";
  const u64 n = std::stoul(c.param("n", "4096")), each = fp8 ? 1 : element == "bf16" ? 2 : element == "f64" ? 8 : 4;
  const u64 bytes = n * n * each, result = fp8 ? 2 * bytes : bytes;
  const auto matrix = [&](u32 region) {
    const u64 all = region == 2 ? result : bytes;
    return Span{region, 0, all, all};
  };
  using enum Access::Dir;
  Program program;
  const Content numbers = fp8 ? Content::pattern : Content::numbers;  // 1 in 128 bytes of numbers is no number in fp8
  for (const Content content : {numbers, numbers, Content::poison})
    program.regions.push_back({c.src, c.src_memory, content == Content::poison ? result : bytes, content});
  Actor stream;
  stream.place = c.src;
  const double operations = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  stream.loop = {Opaque{
      "cublas_gemm", element, {n, n, n}, {{matrix(0), read}, {matrix(1), read}, {matrix(2), write}}, operations}};
  program.actors = {std::move(stream)};
  program.flows = {{0, c.src, c.dst, c.src_memory, c.dst_memory, 0, true, operations}};
  return program;
}

}  // namespace

std::vector<Benchmark> gemms() {
  constexpr bool sized = false;
  return {{"gemm",
           "products of square matrices by cuBLAS or cuBLASLt",
           "SHOC level 1: GEMM",
           Engine::sm,
           PlaceKind::gpu,
           PlaceKind::gpu,
           Relation::same,
           {{MemKind::device, MemKind::device}},
           {{"element",
             {"bf16", "f32", "f64", "tf32", "fp8"},
             "type of the elements; tf32: f32 that tensor cores multiply with 10 bits; fp8: e4m3, with sums in f32"},
            {"n", {"4096", "1024", "2048", "8192", "16384"}, "rows and columns of each matrix"}},
           build,
           sized,
           Taken::by_name,
           Role::computation}};
}

}  // namespace linkscope
