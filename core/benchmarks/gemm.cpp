// SHOC level 1: products of square matrices by cuBLAS. An iteration is one product.
#include <string>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build(const Case& c) {
  const auto element = c.param("element", "bf16");
  const u64 n = std::stoul(c.param("n", "4096")), bytes = n * n * (element == "bf16" ? 2 : element == "f32" ? 4 : 8);
  const auto matrix = [&](u32 region) { return Span{region, 0, bytes, bytes}; };
  using enum Access::Dir;
  Program program;
  for (const Content content : {Content::numbers, Content::numbers, Content::poison})
    program.regions.push_back({c.src, c.src_memory, bytes, content});
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
           "products of square matrices by cuBLAS",
           "SHOC level 1: GEMM",
           Engine::sm,
           PlaceKind::gpu,
           PlaceKind::gpu,
           Relation::same,
           {{MemKind::device, MemKind::device}},
           {{"element", {"bf16", "f32", "f64"}, "type of the elements"},
            {"n", {"4096", "1024", "2048", "8192", "16384"}, "rows and columns of each matrix"}},
           build,
           sized,
           Taken::by_name,
           Role::computation}};
}

}  // namespace linkscope
