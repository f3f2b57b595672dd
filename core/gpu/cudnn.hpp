// cuDNN 9, found at run time: convolution and attention by its backend of operation graphs, and softmax.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "gpu/driver.hpp"
#include "gpu/memory.hpp"

namespace linkscope {

enum class Tensors : u8 { f32, f16, bf16 };  // elements; sums are f32

/// A 3 x 3 convolution with a border of zeros: images x channels x size x size. Channels lie beside each other. Weights are
/// channels out x 3 x 3 x channels in; there are as many channels out as in.
struct ConvolutionShape {
  Tensors element = Tensors::bf16;
  u64 images = 0, channels = 0, size = 0;
};
/// softmax(Q K^T / sqrt(width)) V, for each batch and head; each matrix is length x width, row by row.
struct AttentionShape {
  Tensors element = Tensors::bf16;
  u64 batch = 0, heads = 0, length = 0, width = 0;
};
/// Softmax of each row.
struct SoftmaxShape {
  Tensors element = Tensors::f32;
  u64 rows = 0, length = 0;
};

/// One operation of the library, planned for the current context.
class CudnnOperation {
 public:
  /// Why the library cannot be used; "" if it can. It is looked for once.
  [[nodiscard]] static const std::string& why_not();
  /// Throw Error{failed} if the library is not there or fails, and Error{unsupported} if it lacks the operation for this
  /// GPU.
  CudnnOperation(const Driver&, const ConvolutionShape&);
  CudnnOperation(const Driver&, const AttentionShape&);
  CudnnOperation(const Driver&, const SoftmaxShape&);

  /// Queues it. The context is current. `arrays`: images, weights and result; Q, K, V and result; rows and result.
  void queue(CUstream, const std::vector<CUdeviceptr>& arrays);

 private:
  using Owned = std::unique_ptr<void, int (*)(void*)>;
  explicit CudnnOperation(const Driver&);
  [[nodiscard]] Owned tensor(Tensors, const std::vector<u64>& lengths, const std::vector<u64>& strides, bool by_value);
  void plan(void* operation, const char* what);
  [[nodiscard]] bool plan_by(void* graph, int heuristic);
  void pack(const std::vector<CUdeviceptr>& arrays);

  const Driver& driver_;
  Owned handle_, plan_, pack_, rows_;
  std::vector<Owned> parts_;  // descriptors that the plan needs
  std::int64_t tensors_ = 0;  // their ids count from 0
  std::vector<CUdeviceptr> packed_;
  DeviceMemory workspace_;
  float scale_ = 0;  // of an attention
};

}  // namespace linkscope
