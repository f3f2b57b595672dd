// SHOC level 1 as Spafford ran it (SP-5, SP-6): computations of a GPU alone, and each with the transfers that SHOC counts.
// An iteration brings the inputs, computes, and brings the results.
#include "program/computations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;
using enum Access::Dir;

/// An array in the GPU's memory. `in`, `out`: bytes that the operation brings from and to the host, at its start.
struct Array {
  u64 bytes;
  Content content = Content::poison;
  u64 in = 0, out = 0;
};

/// A computation of one size: its arrays, and the accesses of `call` by array and direction.
struct Work {
  Opaque call;
  std::vector<Array> arrays;
  std::vector<std::pair<u32, Access::Dir>> accesses;
  u32 repeats = 1;  // of the computation in an iteration
};

double real(u64 value) { return static_cast<double>(value); }

Array input(u64 bytes, Content content = Content::numbers) { return {bytes, content, bytes, 0}; }
Array output(u64 bytes) { return {bytes, Content::poison, 0, bytes}; }

/// SHOC brings n x n elements of 4 B back, also of a product of doubles.
Work product(const char* element, u64 each, u64 n) {
  const u64 bytes = n * n * each;
  return {{"cublas_gemm", element, {n, n, n}, {}, 2 * real(n) * real(n) * real(n)},
          {input(bytes), input(bytes), {bytes, Content::poison, 0, n * n * std::min<u64>(each, 4)}},
          {{0, read}, {1, read}, {2, write}}};
}
Work sgemm(u64 n) { return product("f32", 4, n); }
Work dgemm(u64 n) { return product("f64", 8, n); }
Work bf16gemm(u64 n) { return product("bf16", 2, n); }

/// Transforms of 512 points, 5 n log2 n operations each. SHOC counts the way in, and not the way out.
Work transforms(const char* element, u64 each, u64 bytes) {
  const u64 points = 512, count = bytes / each / points;
  return {{"cufft", element, {points, count}, {}, real(count) * 5 * real(points) * 9},
          {input(bytes), {bytes}},
          {{0, read}, {1, write}}};
}
Work fft(u64 bytes) { return transforms("f32", 8, bytes); }
Work fft_double(u64 bytes) { return transforms("f64", 16, bytes); }

/// Lennard-Jones forces of 128 neighbors, 21 operations for each pair. A position has four elements.
Work forces(const char* element, u64 each, u64 atoms) {
  const u64 neighbors = 128;
  return {{"forces", element, {atoms, neighbors}, {}, 21 * real(atoms * neighbors)},
          {input(4 * each * atoms), input(4 * atoms * neighbors, Content::pattern), output(4 * each * atoms)},
          {{0, read}, {1, read}, {2, write}}};
}
Work md(u64 atoms) { return forces("f32", 4, atoms); }
Work md_double(u64 atoms) { return forces("f64", 8, atoms); }

/// Additions of integers: their sums do not depend on the order.
Work reduction(u64 bytes) {
  return {{"sum", "u32", {bytes / 4}, {}, real(bytes / 4)},
          {input(bytes, Content::pattern), output(sizeof(u64))},
          {{0, read}, {1, write}}};
}
Work scan(u64 bytes) {
  return {{"scan", "u32", {bytes / 4}, {}, real(bytes / 4)},
          {input(bytes, Content::pattern), output(bytes), {scan_scratch_bytes(bytes / 4)}},
          {{0, read}, {1, write}, {2, write}}};
}

/// Keys with values, in four passes of eight bits, after a count of all digits.
Work sort(u64 bytes) {
  Work work{{"sort", "u32", {bytes / 4}, {}, 0},
            {input(bytes, Content::pattern),
             input(bytes, Content::pattern),
             {bytes},
             {bytes},
             output(bytes),
             output(bytes),
             {sort_scratch_bytes(bytes / 4)}},
            {{0, read}, {1, read}, {2, write}, {3, write}, {4, write}, {5, write}, {6, write}, {0, read}}};
  for (u32 pass = 1; pass < sort_passes; ++pass) {
    const u32 from = pass % 2 ? 2 : 4, to = pass % 2 ? 4 : 2;
    work.accesses.insert(work.accesses.end(), {{from, read}, {from + 1, read}});
    if (pass > 1) work.accesses.insert(work.accesses.end(), {{to, write}, {to + 1, write}});
  }
  return work;
}

/// Nine points: 8 additions and 3 multiplications. Two steps use both arrays.
Work stencil_of(u64 n, u64 steps) {
  const u64 bytes = 4 * n * n;
  return {{"stencil", "f32", {n, steps}, {}, 11 * real(n * n) * real(steps), steps / 2},
          {input(bytes), output(bytes), {bytes}},
          {{0, read}, {1, write}, {2, write}, {2, read}}};
}
Work stencil(u64 n) { return stencil_of(n, n == 4096 ? 1000 : n > 4096 ? 100 : 4); }

Work triad(u64 bytes) {
  return {{"triad", "f32", {bytes / 4}, {}, 2 * real(bytes / 4)},
          {input(bytes), input(bytes), output(bytes)},
          {{0, read}, {1, read}, {2, write}}};
}

Work repeated(Work work, u32 repeats) {
  work.repeats = repeats;
  return work;
}
/// Stand-ins for the applications of SP-13, from the computations above; nothing of their CPU work. LAMMPS (lj-cut): 20
/// steps between rebuilt lists of neighbors. DCA++: four products of order 24 sites x 80 slices. OpenMM (dhfr): 50 steps.
Work stand_in_lammps(u64 atoms) { return repeated(md(atoms), 20); }
Work stand_in_dca(u64 n) { return repeated(dgemm(n), 4); }
Work stand_in_openmm(u64 atoms) { return repeated(md(atoms), 50); }

/// `sizes`: small, SHOC's largest class (`-s 4`, coverage.md SP-6), and one that fills a GPU of today.
struct Kind {
  const char *name, *summary;
  std::array<u64, 3> sizes;
  Work (*work)(u64 size);
};

constexpr auto kinds = std::to_array<Kind>({
    {"compute_sgemm", "product of square f32 matrices by cuBLAS", {128, 4096, 16384}, sgemm},
    {"compute_dgemm", "product of square f64 matrices by cuBLAS", {128, 2048, 8192}, dgemm},
    {"compute_bf16gemm", "product of square bf16 matrices by cuBLAS", {128, 4096, 16384}, bf16gemm},
    {"compute_fft", "f32 Fourier transforms of 512 points by cuFFT", {64_KiB, 256_MiB, 1_GiB}, fft},
    {"compute_fft_double", "f64 Fourier transforms of 512 points by cuFFT", {64_KiB, 256_MiB, 1_GiB}, fft_double},
    {"compute_md", "f32 Lennard-Jones forces of 128 neighbors an atom", {256, 73728, 1 << 20}, md},
    {"compute_md_double", "f64 Lennard-Jones forces of 128 neighbors an atom", {256, 73728, 1 << 20}, md_double},
    {"compute_reduction", "sum of 32-bit integers", {64_KiB, 64_MiB, 1_GiB}, reduction},
    {"compute_scan", "prefix sums of 32-bit integers", {64_KiB, 64_MiB, 1_GiB}, scan},
    {"compute_sort", "radix sort of 32-bit keys with values", {64_KiB, 96_MiB, 512_MiB}, sort},
    {"compute_stencil", "steps of a nine-point stencil", {64, 4096, 16384}, stencil},
    {"compute_triad", "a = b + s c, bound by memory", {64_KiB, 64_MiB, 1_GiB}, triad},
    {"compute_stand_in_lammps", "stand-in for LAMMPS: steps of forces", {256, 73728, 1 << 20}, stand_in_lammps},
    {"compute_stand_in_dca", "stand-in for DCA++: products of f64 matrices", {128, 1920, 7680}, stand_in_dca},
    {"compute_stand_in_openmm",
     "stand-in for OpenMM: steps of forces of few atoms",
     {256, 2492, 24920},
     stand_in_openmm},
});
constexpr std::array<std::string_view, 3> size_names{"small", "shoc", "full"};

Work work_of(const Case& c) {
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return c.benchmark == k.name; });
  const auto size = std::find(size_names.begin(), size_names.end(), c.param("size", "shoc"));
  return kind->work(kind->sizes[static_cast<std::size_t>(size - size_names.begin())]);
}

void add_arrays(Program& program, Opaque& call, const Work& work, const Place& gpu, bool filled) {
  for (const auto& array : work.arrays)
    program.regions.push_back({gpu, MemKind::device, array.bytes, filled ? array.content : Content::poison});
  for (const auto& [array, dir] : work.accesses)
    call.traffic.push_back({Span{array, 0, work.arrays[array].bytes, work.arrays[array].bytes}, dir});
}

/// The computation in the GPU's memory. Its flow's bytes are what it reads and writes.
Program alone(const Case& c) {
  Work work = work_of(c);
  Program program;
  add_arrays(program, work.call, work, c.src, true);
  Actor stream;
  stream.place = c.src;
  stream.loop.assign(work.repeats, work.call);
  program.flows = {{0, c.src, c.dst, c.src_memory, c.dst_memory, work.repeats * traffic_bytes(work.call), true,
                    work.repeats * work.call.operations}};
  program.actors = {std::move(stream)};
  return program;
}

/// Its inputs from the host, the computation, its results to the host. The flows are both directions.
Program with_transfers(const Case& c) {
  Work work = work_of(c);
  Program program;
  add_arrays(program, work.call, work, c.dst, false);
  Actor stream;
  stream.place = c.dst;
  stream.cpu = c.src;
  std::vector<Step> back;
  u64 in = 0, out = 0;
  for (u32 i = 0; i < work.arrays.size(); ++i) {
    const auto& array = work.arrays[i];
    const auto host = static_cast<u32>(program.regions.size());
    const u64 bytes = array.in + array.out;  // an array has one direction
    if (!bytes) continue;
    program.regions.push_back({c.src, c.src_memory, bytes, array.in ? array.content : Content::poison});
    const Span there{i, 0, bytes, bytes}, here{host, 0, bytes, bytes};
    if (array.in) stream.loop.emplace_back(Move{here, there});
    else back.emplace_back(Move{there, here});
    in += array.in;
    out += array.out;
  }
  const double operations = work.repeats * work.call.operations;
  stream.loop.insert(stream.loop.end(), work.repeats, work.call);
  stream.loop.insert(stream.loop.end(), back.begin(), back.end());
  program.actors = {std::move(stream)};
  program.flows = {{0, c.src, c.dst, c.src_memory, c.dst_memory, in, true, operations}};
  if (out) program.flows.push_back({0, c.dst, c.src, c.dst_memory, c.src_memory, out});
  return program;
}

/// Beside copies of 16 MiB from the same node to the same GPU or to another one.
Program beside_copies(const Case& c, const std::string& beside) {
  std::vector<Program> all{with_transfers(c)};
  const auto copies_to = [&](u32 gpu) {
    Case copy{"h2d",  Engine::ce, c.src, {PlaceKind::gpu, gpu, c.src.host, {}}, MemKind::pinned, MemKind::device,
              16_MiB, 64_MiB,     {}};
    auto made = build_program(copy);
    made.cache = CacheState::cold;
    for (auto& flow : made.flows) flow.measured = false;
    all.push_back(std::move(made));
  };
  if (beside == "same") copies_to(c.dst.index);
  if (beside == "other") copies_to(c.dst.index == 0 ? 1 : 0);
  return together(all);
}

/// Two tasks: a second one on another GPU with the memory of a node.
Program beside_second(const Case& c, const std::string& node) {
  Case second = c;
  second.src.index = static_cast<u32>(std::stoul(node));
  second.dst.index = c.dst.index == 0 ? 1 : 0;
  return together({with_transfers(c), with_transfers(second)});
}

Program build_computations(const Case& c) {
  if (c.src.kind == PlaceKind::gpu) return alone(c);
  if (const auto second = c.param("second", "none"); second != "none") return beside_second(c, second);
  const auto beside = c.param("beside", "");
  return beside.empty() ? with_transfers(c) : beside_copies(c, beside);
}

}  // namespace

std::vector<Benchmark> computations() {
  using enum PlaceKind;
  using enum MemKind;
  constexpr bool sized = false;
  const Param size{"size", {"shoc", "small", "full"}, "SHOC's largest, a small one, or one that fills a GPU"};
  const Param beside{"beside",
                     {"", "none", "same", "other"},
                     "copies of 16 MiB to the same GPU or to another one, for a fixed time",
                     false,
                     false,
                     {"none", "same", "other"}};
  const Param second{
      "second", {"none", "0", "1"}, "a second task on another GPU, with its memory on this NUMA node", false};
  std::vector<Benchmark> rows;
  for (const auto& kind : kinds) {
    const bool stand_in = std::string_view{kind.name}.starts_with("compute_stand_in");
    rows.push_back({kind.name,
                    kind.summary,
                    "SHOC level 1",
                    Engine::sm,
                    gpu,
                    gpu,
                    Relation::same,
                    {{device, device}},
                    {size},
                    build_computations,
                    sized,
                    Taken::by_name,
                    Role::computation});
    rows.push_back({kind.name,
                    kind.summary,
                    "Spafford 4.1: SHOC level 1 with transfers",
                    Engine::sm,
                    numa,
                    gpu,
                    Relation::any,
                    {{pinned, device}, {pageable, device}},
                    stand_in ? std::vector{size, beside, second} : std::vector{size, beside},
                    build_computations,
                    sized,
                    Taken::by_name,
                    Role::computation});
  }
  return rows;
}

}  // namespace linkscope
