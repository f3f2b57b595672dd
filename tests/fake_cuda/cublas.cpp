// A fake cuBLAS on the fake driver. A product computes sampled elements (sampled_product.hpp). An update of C and a
// triangular solve are whole.
#include "base/units.hpp"
#include "library.hpp"
#include "sampled_product.hpp"

namespace {

struct Handle {
  CUstream stream = nullptr;
};

using linkscope::u64;
constexpr int success = 0, not_initialized = 1, execution_failed = 13;
constexpr int real_64f = 1, real_16f = 2, real_16bf = 14;  // cudaDataType

fake_library::Format format_of(int type) {
  using enum fake_library::Format;
  return type == real_64f ? f64 : type == real_16f ? f16 : type == real_16bf ? bf16 : f32;
}

/// C -= A B, every element.
struct Update {
  u64 m, n, k;
  const double *a, *b;
  double* c;
  u64 lda, ldb, ldc;

  void run() const {
    for (u64 column = 0; column < n; ++column)
      for (u64 row = 0; row < m; ++row)
        for (u64 p = 0; p < k; ++p) c[row + column * ldc] -= a[row + p * lda] * b[p + column * ldb];
  }
};

}  // namespace

FAKE_EXPORT int cublasCreate_v2(Handle** handle) {
  *handle = new Handle;
  return success;
}

FAKE_EXPORT int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return success;
}

FAKE_EXPORT int cublasSetStream_v2(Handle* handle, CUstream stream) {
  handle->stream = stream;
  return success;
}

FAKE_EXPORT int cublasGemmEx(Handle* handle, int, int, int m, int n, int k, const void*, const void* a, int type,
                             int lda, const void* b, int, int ldb, const double* beta, void* c, int, int ldc, int,
                             int) {
  if (!handle) return not_initialized;
  const auto length = [](int value) { return static_cast<u64>(value); };
  const u64 rows = length(m), columns = length(n), inner = length(k);
  bool queued = false;
  if (type == real_64f && *beta != 0) {
    const Update update{rows,
                        columns,
                        inner,
                        static_cast<const double*>(a),
                        static_cast<const double*>(b),
                        static_cast<double*>(c),
                        length(lda),
                        length(ldb),
                        length(ldc)};
    queued = fake_library::submit(handle->stream, [update](bool) { update.run(); });
  } else {
    const auto format = format_of(type);
    const fake_library::SampledProduct product{
        rows,   columns, inner, static_cast<const char*>(a), static_cast<const char*>(b), static_cast<char*>(c),
        format, format};
    queued = fake_library::submit(handle->stream, [product](bool damaged) { product.run(damaged); });
  }
  return queued ? success : execution_failed;
}

/// Left: B = L^-1 B with a unit diagonal. Right: B = B U^-1.
FAKE_EXPORT int cublasDtrsm_v2(Handle* handle, int side, int, int, int, int m, int n, const double*, const double* a,
                               int lda, double* b, int ldb) {
  if (!handle) return not_initialized;
  const bool queued = fake_library::submit(handle->stream, [=](bool) {
    for (int column = 0; column < n; ++column)
      for (int row = 0; row < m; ++row) {
        double& found = b[row + column * ldb];
        if (side == 0)
          for (int p = 0; p < row; ++p) found -= a[row + p * lda] * b[p + column * ldb];
        else {
          for (int p = 0; p < column; ++p) found -= b[row + p * ldb] * a[p + column * lda];
          found /= a[column + column * lda];
        }
      }
  });
  return queued ? success : execution_failed;
}
