// Comm|Scope's 3d/ (pack, peer copy, unpack): a face of a cube of cells moves to a cube on another GPU or the same one:
// in place, by a 2D copy or a kernel; or packed by a kernel, copied contiguously and unpacked by the other GPU.
#include <bit>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u64 largest = u64{4} << 20;  // of two cubes of 2 GiB

/// Cells are stored along x, then y, then z.
struct Cube {
  u64 edge, cell;

  /// Cells of 8 B, or of 16 B if that makes a face of this many bytes square.
  static Cube with_face(const Case& c) {
    if (!std::has_single_bit(c.bytes) || c.bytes < 32 || c.bytes > largest)
      throw Error{ErrorKind::usage, c.benchmark + ": no cube has a face of " + std::to_string(c.bytes) +
                                        " B; faces are powers of two from 32 B to " + std::to_string(largest) + " B"};
    const u64 cell = std::countr_zero(c.bytes) % 2 ? 8 : 16;
    return {u64{1} << (std::countr_zero(c.bytes / cell) / 2), cell};
  }
  [[nodiscard]] u64 bytes() const { return edge * edge * edge * cell; }
  /// The first plane of cells in a direction.
  [[nodiscard]] Rows face(const std::string& direction) const {
    if (direction == "z") return {};
    if (direction == "y") return {edge * cell, edge * edge * cell};
    return {cell, edge * cell};
  }
};

Program build_halos(const Case& c) {
  const auto cube = Cube::with_face(c);
  const Rows face = cube.face(c.param("face", "z"));
  const u32 slices = slice_count(cube.bytes(), c.footprint_bytes, c.engine);
  const Span from{0, 0, c.bytes, cube.bytes(), slices, face}, to{1, 0, c.bytes, cube.bytes(), slices, face};
  Program program = empty_program(c);
  program.peer = c.src != c.dst;
  program.regions = {{c.src, c.src_memory, cube.bytes() * slices, Content::pattern},
                     {c.dst, c.dst_memory, cube.bytes() * slices, Content::poison}};
  program.flows.push_back({0, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes});
  Actor stream;
  stream.place = c.src;
  if (c.param("way", "direct") == "direct") {
    stream.loop.push_back(Move{from, to, c.engine, false, kernel_shape(c)});
  } else {
    const u64 stride = slice_stride(c.bytes);
    program.regions.push_back({c.src, c.src_memory, stride * slices, Content::poison});
    program.regions.push_back({c.dst, c.dst_memory, stride * slices, Content::poison});
    const Span packed{2, 0, c.bytes, stride, slices}, arrived{3, 0, c.bytes, stride, slices};
    const Shape shape{0, 512};
    stream.loop.push_back(Move{from, packed, Engine::sm, false, shape});
    stream.loop.push_back(Move{packed, arrived, c.engine});
    stream.loop.push_back(
        Move{arrived, to, Engine::sm, false, shape, false, c.src != c.dst ? std::optional{c.dst} : std::nullopt});
  }
  program.actors.push_back(std::move(stream));
  return program;
}

}  // namespace

std::vector<Benchmark> halos() {
  const Param face{"face", {"z", "y", "x"}, "z: in one piece; y: rows of cells; x: single cells"};
  const Param way{"way", {"direct", "packed"}, "direct: copied as it lies; packed: packed, copied and unpacked"};
  const auto row = [](std::string_view summary, Engine engine, std::vector<Param> params) {
    return Benchmark{"halo",
                     summary,
                     "Comm|Scope 3d/",
                     engine,
                     PlaceKind::gpu,
                     PlaceKind::gpu,
                     Relation::any,
                     {{MemKind::device, MemKind::device}},
                     std::move(params),
                     build_halos};
  };
  return {
      row("a face of a cube of cells to another cube, by copy engine", Engine::ce,
          {mode_param(), face, way, clock_param()}),
      row("a face of a cube of cells to another cube, by one kernel", Engine::sm,
          {mode_param(), face, blocks_param(), threads_param(), clock_param()}),
  };
}

}  // namespace linkscope
