// cuBLAS, found at run time: matrix products on a stream.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

enum class Element : u8 { f32, f64, bf16, tf32, fp8, f16 };
[[nodiscard]] std::optional<Element> parse_element(std::string_view);
[[nodiscard]] u64 bytes_of(Element);

/// C (m x n) = A (m x k) B (k x n), column by column, without gaps between columns. bf16 and f16 are summed up in f32; tf32 are f32
/// that tensor cores multiply as tf32. fp8 is not for cuBLAS (gpu/cublas_lt.hpp).
struct Gemm {
  Element element = Element::f32;
  int m = 0, n = 0, k = 0;
  CUdeviceptr a = 0, b = 0, c = 0;
};

/// A matrix of f64, column by column. `stride`: elements from a column to the next.
struct Columns {
  CUdeviceptr at = 0;
  int stride = 0;
};
enum class Triangle : u8 { unit_lower_from_left, upper_from_right };

/// The library for one context, with a handle of its own.
class Cublas {
 public:
  /// Why the library cannot be used; "" if it can. It is looked for once.
  [[nodiscard]] static const std::string& why_not();
  /// For the current context. Throws Error{failed} if the library is not there, or refuses.
  Cublas();
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  /// Queues a product. The handle's context is current.
  void queue(CUstream, const Gemm&) const;
  /// Queues C (m x n) -= A (m x k) B (k x n).
  void subtract_product(CUstream, int m, int n, int k, const Columns& a, const Columns& b, const Columns& c) const;
  /// Queues B (m x n) = L^-1 B, or B = B U^-1.
  void solve(CUstream, Triangle, int m, int n, const Columns& triangle, const Columns& b) const;

 private:
  void* handle_ = nullptr;
};

}  // namespace linkscope
