// Comm|Scope's stride/ and 3d/: copies of rows that lie apart, by one call of cuMemcpy2DAsync or cuMemcpy3DAsync or by
// one kernel; strided on both sides, or on one (pack, unpack).
#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u64 plane_rows = 8;

Program build_strided_copies(const Case& c) {
  const u64 row = std::stoull(c.param("row", "512"));
  if (c.bytes % (plane_rows * row) != 0)
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) +
                                      " B is not a whole number of planes of " + std::to_string(plane_rows) +
                                      " rows of " + std::to_string(row) + " B; sizes are multiples of " +
                                      std::to_string(plane_rows * row) + " B"};
  Rows rows{row, 2 * row};
  if (c.param("shape", "2d") == "3d") {
    rows.in_plane = plane_rows;
    rows.plane_pitch = (plane_rows + 1) * rows.pitch;
  }
  const auto gaps = c.param("gaps", "both");
  return one_copy(
      c, {c.src, c.dst, c.src_memory, c.dst_memory, gaps == "dst" ? Rows{} : rows, gaps == "src" ? Rows{} : rows});
}

}  // namespace

std::vector<Benchmark> strided_copies() {
  using enum PlaceKind;
  using enum MemKind;
  std::vector<Benchmark> rows;
  for (const Engine engine : {Engine::ce, Engine::sm}) {
    std::vector<Param> params{
        mode_param(),
        {"shape",
         {"2d", "3d"},
         "2d: rows whose gaps are as long as the rows; 3d: planes of 8 such rows, one row of gap between planes"},
        {"row", {"512", "8", "64", "4096"}, "bytes of a row"},
        {"gaps", {"both", "src", "dst"}, "the strided side; the other side is contiguous"}};
    if (engine == Engine::sm) params.insert(params.end(), {blocks_param(), threads_param()});
    const auto add = [&](std::string_view by_call, std::string_view by_kernel, PlaceKind src, PlaceKind dst,
                         std::pair<MemKind, MemKind> memories) {
      rows.push_back({"strided",
                      engine == Engine::ce ? by_call : by_kernel,
                      "Comm|Scope stride/ and 3d/",
                      engine,
                      src,
                      dst,
                      Relation::any,
                      {memories},
                      params,
                      build_strided_copies});
      if (src == dst) rows.back().params.push_back(initiator_param());
      rows.back().params.push_back(clock_param());
    };
    add("strided rows from host memory to a GPU, by one 2D or 3D call",
        "strided rows from host memory to a GPU, by one kernel", numa, gpu, {pinned, device});
    add("strided rows from a GPU to host memory, by one 2D or 3D call",
        "strided rows from a GPU to host memory, by one kernel", gpu, numa, {device, pinned});
    add("strided rows between two GPUs or within one, by one 2D or 3D call",
        "strided rows between two GPUs or within one, by one kernel", gpu, gpu, {device, device});
  }
  return rows;
}

}  // namespace linkscope
