// Computations that are measured with their transfers: triad, nine-point stencil, Lennard-Jones forces, and parts of a
// blocked LU.
using u32 = unsigned int;
using u64 = unsigned long long;

template <class Real>
struct alignas(4 * sizeof(Real)) linkscope_four_of {
  Real x, y, z, w;
};
using linkscope_four = linkscope_four_of<float>;

__device__ __forceinline__ u64 first_of_grid() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 threads_of_grid() { return (u64)gridDim.x * blockDim.x; }

// a = b + 1.75 c, four elements at a time.
extern "C" __global__ void linkscope_triad(linkscope_four* a, const linkscope_four* b, const linkscope_four* c,
                                           u64 count) {
  for (u64 i = first_of_grid(); i < count / 4; i += threads_of_grid()) {
    const linkscope_four x = b[i], y = c[i];
    a[i] = {x.x + 1.75f * y.x, x.y + 1.75f * y.y, x.z + 1.75f * y.z, x.w + 1.75f * y.w};
  }
}

// A step on a square grid whose border stays. A thread walks down a column and keeps three rows of it, so that it reads
// each row once. The weights have the sum 1.
extern "C" __global__ void linkscope_stencil(const float* in, float* out, u32 n) {
  const u32 rows = 32, tiles = (n + blockDim.x - 1) / blockDim.x, strips = (n + rows - 1) / rows;
  for (u32 item = blockIdx.x; item < tiles * strips; item += gridDim.x) {
    const u32 column = item % tiles * blockDim.x + threadIdx.x, first = item / tiles * rows;
    if (column >= n) continue;
    const u32 end = first + rows < n ? first + rows : n;
    const bool at_side = column == 0 || column + 1 == n;
    float above = 0, above_sides = 0, here = 0, here_sides = 0;
    for (u32 row = first ? first - 1 : 0; row <= end && row < n; ++row) {
      const float* at = in + (u64)row * n + column;
      const float below = at[0], below_sides = at_side ? 0 : at[-1] + at[1];
      if (row > first) {
        const bool at_border = at_side || row == 1;
        const float sum = 0.25f * here + 0.125f * (above + below + here_sides) + 0.0625f * (above_sides + below_sides);
        out[(u64)(row - 1) * n + column] = at_border ? here : sum;
      }
      if (row + 1 == n) out[(u64)row * n + column] = below;
      above = here, above_sides = here_sides;
      here = below, here_sides = below_sides;
    }
  }
}

// Forces on atoms: `neighbors` lists number j of all atoms, then j + 1; a word stands for word * atoms / 2^32. Distances
// are softened, so that two atoms at one place have a finite force.
template <class Real>
__device__ __forceinline__ void add_forces(const linkscope_four_of<Real>* positions, const u32* neighbors,
                                           linkscope_four_of<Real>* forces, u32 atoms, u32 per_atom) {
  for (u64 i = first_of_grid(); i < atoms; i += threads_of_grid()) {
    const linkscope_four_of<Real> own = positions[i];
    linkscope_four_of<Real> sum = {0, 0, 0, 0};
#pragma unroll 8
    for (u32 j = 0; j < per_atom; ++j) {
      const linkscope_four_of<Real> other = positions[(u64)neighbors[(u64)j * atoms + i] * atoms >> 32];
      const Real x = own.x - other.x, y = own.y - other.y, z = own.z - other.z;
      const Real near = 1 / (x * x + y * y + z * z + Real(0.5)), third = near * near * near;
      const Real force = near * third * (Real(1.5) * third - Real(2));
      sum.x += x * force, sum.y += y * force, sum.z += z * force;
    }
    forces[i] = sum;
  }
}

extern "C" __global__ void linkscope_forces(const linkscope_four* positions, const u32* neighbors,
                                            linkscope_four* forces, u32 atoms, u32 per_atom) {
  add_forces(positions, neighbors, forces, atoms, per_atom);
}

extern "C" __global__ void linkscope_forces_double(const linkscope_four_of<double>* positions, const u32* neighbors,
                                                   linkscope_four_of<double>* forces, u32 atoms, u32 per_atom) {
  add_forces(positions, neighbors, forces, atoms, per_atom);
}

// A copy of a square matrix with `more` added to the diagonal.
extern "C" __global__ void linkscope_load_dominant(const double* in, double* out, u64 n, double more) {
  for (u64 i = first_of_grid(); i < n * n; i += threads_of_grid()) out[i] = in[i] + (i % (n + 1) ? 0 : more);
}

// L and U of a block of at most 64 x 64, column by column, in place and without pivots, after `more` was added to its
// diagonal. One block of threads.
extern "C" __global__ void linkscope_factor_block(double* block, u64 stride, u32 n, double more) {
  __shared__ double at[64 * 64];
  for (u32 i = threadIdx.x; i < n * n; i += blockDim.x)
    at[i] = block[i / n * stride + i % n] + (i % (n + 1) ? 0 : more);
  __syncthreads();
  for (u32 k = 0; k + 1 < n; ++k) {
    for (u32 row = k + 1 + threadIdx.x; row < n; row += blockDim.x) at[k * n + row] /= at[k * n + k];
    __syncthreads();
    const u32 first = k + 1, left = n - first;
    for (u32 i = threadIdx.x; i < left * left; i += blockDim.x) {
      const u32 column = first + i / left, row = first + i % left;
      at[column * n + row] -= at[k * n + row] * at[column * n + k];
    }
    __syncthreads();
  }
  for (u32 i = threadIdx.x; i < n * n; i += blockDim.x) block[i / n * stride + i % n] = at[i];
}
