// Device code as in test_kernels.cpp: computations. Results are compared with plain loops.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/pattern.hpp"
#include "kernel_testing.hpp"

namespace emulated {

#include "compute.inc"

}  // namespace emulated

using namespace emulated;

namespace {

constexpr u64 numbers = 1ull << 63;

template <class T>
T* as(const Memory& memory) {
  return reinterpret_cast<T*>(memory.data());
}

}  // namespace

TEST_CASE("triad computes every element") {
  const u64 count = 1000;
  const Memory a{4 * count}, b{4 * count}, c{4 * count};
  b.fill_with_pattern(numbers | 1);
  c.fill_with_pattern(numbers | 2);
  run({3, 64}, [&] { linkscope_triad(as<linkscope_four>(a), as<linkscope_four>(b), as<linkscope_four>(c), count); });
  for (u64 i = 0; i < count; ++i) CHECK(as<float>(a)[i] == as<float>(b)[i] + 1.75f * as<float>(c)[i]);
  CHECK(a.guards_intact());
}

TEST_CASE("a stencil step computes every inner point and keeps the border, for strips that do and do not end with it") {
  for (const u32 n : {3u, 32u, 33u, 70u}) {
    const Memory in{u64{n} * n * 4 / 8 * 8 + 8}, out{u64{n} * n * 4 / 8 * 8 + 8};
    in.fill_with_pattern(numbers | n);
    run({2, 32}, [&] { linkscope_stencil(as<float>(in), as<float>(out), n); });
    const float* from = as<float>(in);
    for (u64 row = 0; row < n; ++row)
      for (u64 column = 0; column < n; ++column) {
        const float* at = from + row * n + column;
        const bool border = row == 0 || column == 0 || row + 1 == n || column + 1 == n;
        const auto n_ = static_cast<std::ptrdiff_t>(n);
        const double expected = border ? double{at[0]}
                                       : 0.25 * at[0] + 0.125 * (at[-1] + at[1] + at[-n_] + at[n_]) +
                                             0.0625 * (at[-n_ - 1] + at[1 - n_] + at[n_ - 1] + at[n_ + 1]);
        CHECK(std::abs(as<float>(out)[row * n + column] - expected) < 1e-5);
      }
    CHECK(out.guards_intact());
  }
}

namespace {

/// Runs the kernel with lists of neighbors in which atom 0 has itself, and compares its forces along x.
template <class Real, class Kernel>
void check_forces(Kernel kernel, double allowed) {
  using Four = linkscope_four_of<Real>;
  const u32 atoms = 40, per_atom = 6;
  const Memory positions{sizeof(Four) * atoms}, neighbors{4 * atoms * per_atom}, forces{sizeof(Four) * atoms};
  positions.fill_with_pattern(numbers | 5);
  neighbors.fill_with_pattern(6);
  as<u32>(neighbors)[0] = 0;
  run({2, 32}, [&] { kernel(as<Four>(positions), as<u32>(neighbors), as<Four>(forces), atoms, per_atom); });
  const auto* at = as<Four>(positions);
  for (u64 i = 0; i < atoms; ++i) {
    double x = 0;
    for (u64 j = 0; j < per_atom; ++j) {
      const auto& other = at[u64{as<u32>(neighbors)[j * atoms + i]} * atoms >> 32];
      const double dx = double{at[i].x} - other.x, dy = double{at[i].y} - other.y, dz = double{at[i].z} - other.z;
      const double square = dx * dx + dy * dy + dz * dz + 0.5, third = std::pow(square, -3);
      x += dx * third / square * (1.5 * third - 2);
    }
    CHECK(std::abs(as<Four>(forces)[i].x - x) < allowed);
  }
  CHECK(forces.guards_intact());
}

}  // namespace

TEST_CASE("forces sum up all neighbors, also one at the same place, in single and in double precision") {
  check_forces<float>([](auto... arguments) { linkscope_forces(arguments...); }, 1e-3);
  check_forces<double>([](auto... arguments) { linkscope_forces_double(arguments...); }, 1e-10);
}

TEST_CASE("a block of a matrix is factored in place with its diagonal raised, and so is that of a loaded matrix") {
  const u64 n = 40, stride = 50;
  const Memory in{8 * stride * stride}, out{8 * stride * stride};
  in.fill_with_pattern(numbers | 9);
  const double* from = as<double>(in);
  double* found = as<double>(out);
  run({2, 32}, [&] { linkscope_load_dominant(from, found, stride, 200); });
  for (u64 i = 0; i < stride * stride; ++i) CHECK(found[i] == from[i] + (i / stride == i % stride ? 200 : 0));
  std::vector<double> loaded(found, found + stride * stride);
  for (u64 i = 0; i < n; ++i) loaded[i * (stride + 1)] += 3;
  run({1, 32}, [&] { linkscope_factor_block(found, stride, n, 3); }, Lanes::lockstep);
  for (u64 row = 0; row < n; ++row)
    for (u64 column = 0; column < n; ++column) {
      double sum = 0;  // of L U, whose diagonal of L is 1
      for (u64 k = 0; k <= std::min(row, column); ++k)
        sum += (k == row ? 1 : found[k * stride + row]) * found[column * stride + k];
      CHECK(std::abs(sum - loaded[column * stride + row]) < 1e-9);
    }
  CHECK(found[n] == loaded[n]);
}
