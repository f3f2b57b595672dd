// C++ versions of core/platform/cuda/kernels/compute.cu, like kernels.cpp. Each counts as a copy for the faults.
#include <algorithm>
#include <functional>
#include <vector>

#include "faults.hpp"
#include "kernels.hpp"
#include "memory.hpp"

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

CUresult forces(CUcontext context, const float* positions, const u32* neighbors, float* found, u32 atoms,
                u32 per_atom) {
  if (!all_reachable(context, range(positions, 4 * u64{atoms}), range(neighbors, u64{atoms} * per_atom),
                     range(found, 4 * u64{atoms})))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(found, 4 * u64{atoms}, [=] {
    for (u64 i = 0; i < atoms; ++i) {
      float sum[4] = {0, 0, 0, 0};
      for (u64 j = 0; j < per_atom; ++j) {
        const float* other = positions + 4 * (u64{neighbors[j * atoms + i]} * atoms >> 32);
        float apart[3], square = 0.5f;
        for (u32 axis = 0; axis < 3; ++axis) {
          apart[axis] = positions[4 * i + axis] - other[axis];
          square += apart[axis] * apart[axis];
        }
        const float third = 1 / (square * square * square), force = third / square * (1.5f * third - 2);
        for (u32 axis = 0; axis < 3; ++axis) sum[axis] += apart[axis] * force;
      }
      std::copy_n(sum, 4, found + 4 * i);
    }
  });
}

CUresult chunk_sums(CUcontext context, const u32* in, u64 count, u64 chunk, u64* sums, u32 apart) {
  const u64 chunks = (count + chunk - 1) / chunk;
  if (!all_reachable(context, range(in, count), range(sums, apart ? chunks : 1))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(sums, 1, [=] {
    for (u64 i = 0; i < count; ++i) sums[apart ? i / chunk : 0] += in[i];
  });
}

CUresult scan(CUcontext context, const u32* in, u64 count, u64 chunk, const u64* sums, u32* out) {
  const u64 chunks = (count + chunk - 1) / chunk;
  if (!all_reachable(context, range(in, count), range(sums, chunks), range(out, count)))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(out, count, [=] {
    u64 earlier = 0;
    for (u64 i = 0; i < chunks; earlier += sums[i++]) {
      auto before = static_cast<u32>(earlier);
      for (u64 at = i * chunk; at < std::min(count, (i + 1) * chunk); before += in[at++]) out[at] = before;
    }
  });
}

CUresult count_digits(CUcontext context, const u32* keys, u64 count, u64 chunk, u64 chunks, u32 shift, u32* counts) {
  if (!all_reachable(context, range(keys, count), range(counts, 16 * chunks))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(counts, 16 * chunks, [=] {
    std::fill_n(counts, 16 * chunks, 0u);
    for (u64 i = 0; i < count; ++i) ++counts[(keys[i] >> shift & 15) * chunks + i / chunk];
  });
}

CUresult move_digits(CUcontext context, const u32* keys, const u32* values, u64 count, u64 chunk, u64 chunks, u32 shift,
                     const u32* starts, u32* keys_to, u32* values_to) {
  if (!all_reachable(context, range(keys, count), range(values, count), range(starts, 16 * chunks),
                     range(keys_to, count), range(values_to, count)))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  return deliver(values_to, count, [=] {
    std::vector<u32> next(starts, starts + 16 * chunks);
    for (u64 i = 0; i < count; ++i) {
      const u64 to = next[(keys[i] >> shift & 15) * chunks + i / chunk]++;
      if (to < count) keys_to[to] = keys[i], values_to[to] = values[i];
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

}  // namespace

void add_computations(std::map<std::string, Prepare>& kernels) {
  kernels.insert({{"linkscope_triad", by_types(triad)},
                  {"linkscope_stencil", by_types(stencil)},
                  {"linkscope_forces", by_types(forces)},
                  {"linkscope_chunk_sums", by_types(chunk_sums)},
                  {"linkscope_scan", by_types(scan)},
                  {"linkscope_count_digits", by_types(count_digits)},
                  {"linkscope_move_digits", by_types(move_digits)},
                  {"linkscope_load_dominant", by_types(load_dominant)},
                  {"linkscope_factor_block", by_types(factor_block)}});
}

}  // namespace fake
