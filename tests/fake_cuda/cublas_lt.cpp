// A fake cuBLASLt on the fake driver. It takes products of e4m3 with a transposed A and a result of bf16, and no others. A
// product computes sampled elements (sampled_product.hpp).
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "library.hpp"
#include "sampled_product.hpp"

namespace {

constexpr int success = 0, execution_failed = 13, not_supported = 15;
constexpr int real_16bf = 14, real_e4m3 = 28, transpose_a = 3;

struct Product {
  int transposed_a = 0;
};
struct Layout {
  int type = 0;
  std::uint64_t rows = 0, columns = 0;
};

template <class T>
int destroy(void* object) {
  delete static_cast<T*>(object);
  return success;
}

}  // namespace

FAKE_EXPORT int cublasLtCreate(void** handle) {
  *handle = new int;
  return success;
}
FAKE_EXPORT int cublasLtDestroy(void* handle) { return destroy<int>(handle); }

FAKE_EXPORT int cublasLtMatmulDescCreate(void** product, int, int) {
  *product = new Product;
  return success;
}
FAKE_EXPORT int cublasLtMatmulDescSetAttribute(Product* product, int attribute, const int* value, std::size_t) {
  if (attribute == transpose_a) product->transposed_a = *value;
  return success;
}
FAKE_EXPORT int cublasLtMatmulDescDestroy(void* product) { return destroy<Product>(product); }

FAKE_EXPORT int cublasLtMatrixLayoutCreate(void** layout, int type, std::uint64_t rows, std::uint64_t columns,
                                           std::int64_t) {
  *layout = new Layout{type, rows, columns};
  return success;
}
FAKE_EXPORT int cublasLtMatrixLayoutDestroy(void* layout) { return destroy<Layout>(layout); }

FAKE_EXPORT int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new int;
  return success;
}
FAKE_EXPORT int cublasLtMatmulPreferenceDestroy(void* preference) { return destroy<int>(preference); }

/// None on a GPU without e4m3 (FAKE_CUBLASLT_NO_FP8), and none for other products.
FAKE_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, const Product* product, const Layout* a, const Layout* b,
                                               const Layout* c, const Layout*, void*, int, void*, int* found) {
  const bool fits = product->transposed_a == 1 && a->type == real_e4m3 && b->type == real_e4m3 &&
                    c->type == real_16bf && a->rows == b->rows && a->columns == c->rows && b->columns == c->columns;
  *found = fits && !std::getenv("FAKE_CUBLASLT_NO_FP8");
  return fits ? success : not_supported;
}

FAKE_EXPORT int cublasLtMatmul(void*, void*, const void*, const char* a, const Layout* of_a, const char* b, void*,
                               const void*, const void*, void*, char* d, const Layout* of_d, const void*, void*,
                               std::size_t, CUstream stream) {
  using enum fake_library::Format;
  const fake_library::SampledProduct product{of_d->rows, of_d->columns, of_a->rows, a, b, d, e4m3, bf16, true};
  return fake_library::submit(stream, [product](bool damaged) { product.run(damaged); }) ? success : execution_failed;
}
