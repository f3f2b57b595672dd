// A fake cuBLAS on the fake driver. A product zeroes C on its stream and computes the elements that linkscope compares
// (base/sampled.hpp): a whole product would take too long.
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

FAKE_EXPORT int cublasGemmEx(Handle* handle, int, int, int m, int n, int k, const void*, const void* a, int type, int,
                             const void* b, int, int, const void*, void* c, int, int, int, int) {
  if (!handle) return not_initialized;
  const auto length = [](int value) { return static_cast<u64>(value); };
  const Product product{
      length(m), length(n), length(k), static_cast<const char*>(a), static_cast<const char*>(b), static_cast<char*>(c),
      type};
  const bool queued = fake_library::submit(handle->stream, [product](bool damaged) { product.run(damaged); });
  return queued ? success : execution_failed;
}
