// cuBLASLt, found at run time: products of 8 bit floating-point numbers, which cuBLAS itself lacks.
#pragma once
#include <memory>
#include <string>

#include "base/units.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

/// C (m x n, bf16) = A^T B, where A (k x m) and B (k x n) are e4m3; column by column, without gaps between columns. Sums
/// are f32. The form with a transposed A is the one that every GPU with e4m3 has.
class Fp8Product {
 public:
  /// Why the library cannot be used; "" if it can. It is looked for once.
  [[nodiscard]] static const std::string& why_not();
  /// For the current context. Throws Error{failed} if the library is not there, and Error{unsupported} if it has no such
  /// product for this GPU.
  Fp8Product(u64 m, u64 n, u64 k);

  /// Queues a product. The context is current.
  void queue(CUstream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c) const;

 private:
  /// cublasLtMatmulHeuristicResult_t of CUDA 12 and 13.
  struct Choice {
    u64 algorithm[8];
    std::size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
  };
  using Owned = std::unique_ptr<void, int (*)(void*)>;
  void choose();

  Owned handle_, product_, a_, b_, c_;
  Choice choice_{};
};

}  // namespace linkscope
