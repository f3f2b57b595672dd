// C++ versions of core/platform/cuda/kernels/compute.cu, cub.cu and tensor.cu, like kernels.cpp. Each that makes a result counts as a
// copy for the faults.
#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "faults.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "program/computations.hpp"
#include "program/tensor_tiles.hpp"
#include "sampled_product.hpp"

namespace fake {
namespace {

using u32 = unsigned;
using u64 = unsigned long long;

template <class... Ranges>
bool all_reachable(CUcontext context, const Ranges&... ranges) {
  return (reachable(context, ranges.first, ranges.second) && ...);
}
template <class T>
std::pair<const void*, u64> range(const T* start, u64 count) {
  return {start, count * sizeof(T)};
}

/// Does the work as the faults have it, and damages the middle of `to`.
template <class T>
CUresult deliver(T* to, u64 count, const std::function<void()>& work) {
  const auto delivers = begin_copy();
  if (delivers != Delivers::nothing) work();
  if (delivers == Delivers::one_wrong_byte) reinterpret_cast<unsigned char*>(to)[count * sizeof(T) / 2 + 3] ^= 64;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult triad(CUcontext context, float* a, const float* b, const float* c, u64 count) {
  if (!all_reachable(context, range(a, count), range(b, count), range(c, count))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(a, count, [=] {
    for (u64 i = 0; i < count; ++i) a[i] = b[i] + 1.75f * c[i];
  });
}

CUresult stencil(CUcontext context, const float* in, float* out, u32 n) {
  if (!all_reachable(context, range(in, u64{n} * n), range(out, u64{n} * n))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(out, u64{n} * n, [=] {
    std::copy_n(in, u64{n} * n, out);
    for (u64 row = 1; row + 1 < n; ++row)
      for (u64 column = 1; column + 1 < n; ++column) {
        const float *at = in + row * n + column, *above = at - n, *below = at + n;
        out[row * n + column] = 0.25f * at[0] + 0.125f * (at[-1] + at[1] + above[0] + below[0]) +
                                0.0625f * (above[-1] + above[1] + below[-1] + below[1]);
      }
  });
}

template <class Real>
CUresult forces(CUcontext context, const Real* positions, const u32* neighbors, Real* found, u32 atoms, u32 per_atom) {
  if (!all_reachable(context, range(positions, 4 * u64{atoms}), range(neighbors, u64{atoms} * per_atom),
                     range(found, 4 * u64{atoms})))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(found, 4 * u64{atoms}, [=] {
    for (u64 i = 0; i < atoms; ++i) {
      Real sum[4] = {0, 0, 0, 0};
      for (u64 j = 0; j < per_atom; ++j) {
        const Real* other = positions + 4 * (u64{neighbors[j * atoms + i]} * atoms >> 32);
        Real apart[3], square = Real(0.5);
        for (u32 axis = 0; axis < 3; ++axis) {
          apart[axis] = positions[4 * i + axis] - other[axis];
          square += apart[axis] * apart[axis];
        }
        const Real third = 1 / (square * square * square), force = third / square * (Real(1.5) * third - 2);
        for (u32 axis = 0; axis < 3; ++axis) sum[axis] += apart[axis] * force;
      }
      std::copy_n(sum, 4, found + 4 * i);
    }
  });
}

CUresult sum(CUcontext context, const u32* in, u32 count, u64* found) {
  if (!all_reachable(context, range(in, count), range(found, 1))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(found, 1, [=] { *found = std::accumulate(in, in + count, *found); });
}

/// The mark of a tile that a scan has yet to do, as CUB has it.
constexpr u64 to_do = 99;

CUresult scan_start(CUcontext context, u64* tiles, u32 count) {
  if (!all_reachable(context, range(tiles, linkscope::scan_padding + count))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  std::fill_n(tiles, linkscope::scan_padding, 0);
  std::fill_n(tiles + linkscope::scan_padding, count, to_do);
  return CUDA_SUCCESS;
}

/// A scan whose tiles were not prepared would wait without end on a GPU; here it delivers nothing.
CUresult scan(CUcontext context, const u32* in, u32* out, u32 count, u64* tiles) {
  const u64 all = linkscope::scan_tiles(count);
  if (!all_reachable(context, range(in, count), range(out, count), range(tiles, linkscope::scan_padding + all)))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  tiles += linkscope::scan_padding;
  if (!std::all_of(tiles, tiles + all, [](u64 tile) { return tile == to_do; })) return CUDA_SUCCESS;
  std::fill_n(tiles, all, to_do + 2);
  return deliver(out, count, [=] { std::exclusive_scan(in, in + count, out, 0u); });
}

u32 digit_of(u32 key, u32 pass) { return key >> 8 * pass & 255; }

CUresult digit_counts(CUcontext context, const u32* keys, u32 count, u32* counts) {
  constexpr u64 all = u64{linkscope::sort_passes} * linkscope::sort_digits;
  if (!all_reachable(context, range(keys, count), range(counts, all))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(counts, all, [=] {
    for (u32 i = 0; i < count; ++i)
      for (u32 pass = 0; pass < linkscope::sort_passes; ++pass)
        ++counts[pass * linkscope::sort_digits + digit_of(keys[i], pass)];
  });
}

CUresult digit_starts(CUcontext context, u32* counts) {
  constexpr u32 digits = linkscope::sort_digits;
  if (!all_reachable(context, range(counts, u64{linkscope::sort_passes} * digits))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (u32* at = counts; at != counts + linkscope::sort_passes * digits; at += digits)
    std::exclusive_scan(at, at + digits, at, 0u);
  return CUDA_SUCCESS;
}

/// As the scan: words that are not 0 at the start let a GPU deliver nothing of use.
CUresult sort_pass(CUcontext context, const u32* keys, const u32* values, int count, u32 pass, const u32* starts,
                   u32* next, u32* before, u32* keys_to, u32* values_to) {
  const u64 all = static_cast<u64>(count), tiles = linkscope::sort_tiles(all), counts = tiles * linkscope::sort_digits;
  if (!all_reachable(context, range(keys, all), range(values, all), range(starts, linkscope::sort_digits),
                     range(next, 1), range(before, counts), range(keys_to, all), range(values_to, all)))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (*next != 0 || std::any_of(before, before + counts, [](u32 word) { return word != 0; })) return CUDA_SUCCESS;
  *next = static_cast<u32>(tiles);
  std::fill_n(before, counts, 1u << 31);
  return deliver(values_to, all, [=] {
    std::vector<u32> at(starts, starts + linkscope::sort_digits);
    for (u64 i = 0; i < all; ++i) {
      const u32 to = at[digit_of(keys[i], pass)]++;
      if (to < all) keys_to[to] = keys[i], values_to[to] = values[i];
    }
  });
}

CUresult load_dominant(CUcontext context, const double* in, double* out, u64 n, double more) {
  if (!all_reachable(context, range(in, n * n), range(out, n * n))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(out, n * n, [=] {
    for (u64 i = 0; i < n * n; ++i) out[i] = in[i] + (i % (n + 1) ? 0 : more);
  });
}

CUresult factor_block(CUcontext context, double* block, u64 stride, u32 n, double more) {
  if (!all_reachable(context, range(block, (n - 1) * stride + n))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(block, n, [=] {
    for (u64 k = 0; k < n; ++k) block[k * (stride + 1)] += more;
    for (u64 k = 0; k < n; ++k)
      for (u64 row = k + 1; row < n; ++row) {
        block[k * stride + row] /= block[k * stride + k];
        for (u64 column = k + 1; column < n; ++column)
          block[column * stride + row] -= block[k * stride + row] * block[column * stride + k];
      }
  });
}

/// Of matrices whose lengths are multiples of a tile (program/tensor_tiles.hpp); others would leave parts of C on a GPU.
template <fake_library::Format format>
CUresult product(CUcontext context, const char* a, const char* b, float* c, u32 m, u32 n, u64 pitch) {
  if (!all_reachable(context, range(a, m * pitch), range(b, n * pitch), range(c, u64{m} * n)))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (m % tensor_tile || n % tensor_tile) return CUDA_ERROR_INVALID_VALUE;
  const fake_library::SampledProduct all{m,
                                         n,
                                         pitch / fake_library::bytes_of(format),
                                         a,
                                         b,
                                         reinterpret_cast<char*>(c),
                                         format,
                                         fake_library::Format::f32,
                                         true};
  const auto delivers = begin_copy();
  if (delivers != Delivers::nothing) all.run(delivers == Delivers::one_wrong_byte);
  end_copy();
  return CUDA_SUCCESS;
}

}  // namespace

void add_computations(std::map<std::string, Prepare>& kernels) {
  kernels.insert({{"linkscope_triad", by_types(triad)},
                  {"linkscope_stencil", by_types(stencil)},
                  {"linkscope_forces", by_types(forces<float>)},
                  {"linkscope_forces_double", by_types(forces<double>)},
                  {"linkscope_sum", by_types(sum)},
                  {"linkscope_scan_start", by_types(scan_start)},
                  {"linkscope_scan", by_types(scan)},
                  {"linkscope_digit_counts", by_types(digit_counts)},
                  {"linkscope_digit_starts", by_types(digit_starts)},
                  {"linkscope_sort_pass", by_types(sort_pass)},
                  {"linkscope_load_dominant", by_types(load_dominant)},
                  {"linkscope_factor_block", by_types(factor_block)},
                  {"linkscope_product_bf16", by_types(product<fake_library::Format::bf16>)},
                  {"linkscope_product_f16", by_types(product<fake_library::Format::f16>)},
                  {"linkscope_product_tf32", by_types(product<fake_library::Format::f32>)}});
}

}  // namespace fake
