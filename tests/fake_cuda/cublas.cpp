// A fake cuBLAS on the fake driver. A product zeroes C on its stream and computes the elements that linkscope compares
// (base/sampled.hpp): a whole product would take too long. An update of C and a
// triangular solve are whole.
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/sampled.hpp"
#include "library.hpp"

namespace {

struct Handle {
  CUstream stream = nullptr;
};

using linkscope::u64;
constexpr int success = 0, not_initialized = 1, execution_failed = 13;
constexpr int real_64f = 1, real_16bf = 14;  // cudaDataType

struct Product {
  u64 m, n, k;
  const char *a, *b;
  char* c;
  int type;
  u64 lda, ldb, ldc;

  [[nodiscard]] u64 each() const { return type == real_64f ? 8 : type == real_16bf ? 2 : 4; }
  [[nodiscard]] double at(const char* matrix, u64 index) const {
    u64 bits = 0;
    std::memcpy(&bits, matrix + index * each(), each());
    if (type == real_64f) return std::bit_cast<double>(bits);
    return std::bit_cast<float>(static_cast<std::uint32_t>(type == real_16bf ? bits << 16 : bits));
  }
  void put(u64 index, double value) const {
    u64 bits = std::bit_cast<u64>(value);
    if (type != real_64f)
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> (type == real_16bf ? 16 : 0);
    std::memcpy(c + index * each(), &bits, each());
  }
  /// C -= A B, every element.
  void subtract() const {
    for (u64 column = 0; column < n; ++column)
      for (u64 row = 0; row < m; ++row) {
        double left = at(c, row + column * ldc);
        for (u64 p = 0; p < k; ++p) left -= at(a, row + p * lda) * at(b, p + column * ldb);
        put(row + column * ldc, left);
      }
  }
  void run(bool damaged) const {
    std::memset(c, 0, m * n * each());
    for (u64 sample = 0; sample < linkscope::most_sampled; ++sample) {
      const u64 where = linkscope::sampled_at(sample, m * n);
      double sum = damaged && sample == 0 ? 1000 : 0;
      for (u64 p = 0; p < k; ++p) sum += at(a, where % m + p * m) * at(b, p + where / m * k);
      put(where, sum);
    }
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
  const Product product{length(m),
                        length(n),
                        length(k),
                        static_cast<const char*>(a),
                        static_cast<const char*>(b),
                        static_cast<char*>(c),
                        type,
                        length(lda),
                        length(ldb),
                        length(ldc)};
  const bool subtracts = type == real_64f && *beta != 0;
  const bool queued = fake_library::submit(handle->stream, [product, subtracts](bool damaged) {
    if (subtracts) product.subtract();
    else product.run(damaged);
  });
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
