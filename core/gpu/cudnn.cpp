#include "gpu/cudnn.hpp"

#include <dlfcn.h>

#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace linkscope {
namespace {

// From cudnn_graph.h and cudnn_ops.h of cuDNN 9.
enum Descriptor : int {
  convolution = 1,
  engine_config = 3,
  heuristics = 4,
  execution_plan = 5,
  operation_convolution = 10,
  operation_graph = 15,
  variant_pack = 16,
  tensor_of = 17,
  operation_attention = 41,  // since 9.13
};
enum Type : int {
  type_handle = 0,
  type_data = 1,
  type_boolean = 2,
  type_int64 = 3,
  type_float = 4,
  type_pointer = 6,
  type_convolution_mode = 7,
  type_heuristic = 8,
  type_descriptor = 15,
};
enum Attribute : int {
  convolution_computes = 100,
  convolution_mode = 101,
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_paddings_after = 104,
  convolution_paddings_before = 105,
  convolution_dimensions = 106,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  plan_handle = 400,
  plan_config = 401,
  plan_workspace = 402,
  convolution_alpha = 700,
  convolution_beta = 701,
  convolution_descriptor = 702,
  convolution_weights = 703,
  convolution_images = 704,
  convolution_result = 705,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_lengths = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_by_value = 908,
  pack_ids = 1000,
  pack_pointers = 1001,
  pack_workspace = 1003,
  attention_q = 2800,  // K, V and the result follow
  attention_scale = 2805,
};
constexpr int success = 0, first_not_supported = 3000, after_not_supported = 4000, not_initialized = 1001;
constexpr int data_f32 = 0, data_f16 = 2, data_bf16 = 9, cross_correlation = 1;
constexpr int heuristic_a = 3, heuristic_fallback = 2;
constexpr int softmax_accurate = 1, softmax_of_instance = 0, format_nchw = 0;
constexpr std::int64_t vector_bytes = 16;

struct Library {
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, CUstream) = nullptr;
  int (*create_descriptor)(int kind, void** descriptor) = nullptr;
  int (*destroy_descriptor)(void* descriptor) = nullptr;
  int (*set)(void* descriptor, int attribute, int type, std::int64_t count, const void* values) = nullptr;
  int (*get)(void* descriptor, int attribute, int type, std::int64_t wanted, std::int64_t* count,
             void* values) = nullptr;
  int (*finalize)(void* descriptor) = nullptr;
  int (*execute)(void* handle, void* plan, void* pack) = nullptr;
  int (*create_rows)(void** rows) = nullptr;
  int (*destroy_rows)(void* rows) = nullptr;
  int (*set_rows)(void* rows, int format, int type, int n, int c, int h, int w) = nullptr;
  int (*softmax)(void* handle, int algorithm, int mode, const void* alpha, void* from_rows, const void* from,
                 const void* beta, void* to_rows, void* to) = nullptr;
  std::string why_not;

  Library() {
    void* library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      why_not = "cuDNN is not here (libcudnn.so.9 cannot be loaded): install it, or add its folder to LD_LIBRARY_PATH";
      return;
    }
    const auto fetch = [&]<class Function>(Function& target, const char* name) {
      target = reinterpret_cast<Function>(dlsym(library, name));
      if (!target && why_not.empty()) why_not = std::string{"cuDNN lacks "} + name;
    };
    fetch(create, "cudnnCreate");
    fetch(destroy, "cudnnDestroy");
    fetch(set_stream, "cudnnSetStream");
    fetch(create_descriptor, "cudnnBackendCreateDescriptor");
    fetch(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    fetch(set, "cudnnBackendSetAttribute");
    fetch(get, "cudnnBackendGetAttribute");
    fetch(finalize, "cudnnBackendFinalize");
    fetch(execute, "cudnnBackendExecute");
    fetch(create_rows, "cudnnCreateTensorDescriptor");
    fetch(destroy_rows, "cudnnDestroyTensorDescriptor");
    fetch(set_rows, "cudnnSetTensor4dDescriptor");
    fetch(softmax, "cudnnSoftmaxForward");
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

void check(int status, const std::string& call) {
  if (status == success) return;
  const bool lacks = status >= first_not_supported && status < after_not_supported;
  throw Error{lacks ? ErrorKind::unsupported : ErrorKind::failed,
              call + ": cuDNN reports status " + std::to_string(status)};
}

int data_type(Tensors element) {
  return element == Tensors::f32 ? data_f32 : element == Tensors::f16 ? data_f16 : data_bf16;
}

using Owned = std::unique_ptr<void, int (*)(void*)>;

Owned made(int kind) {
  void* descriptor = nullptr;
  check(library().create_descriptor(kind, &descriptor), "cudnnBackendCreateDescriptor");
  return {descriptor, library().destroy_descriptor};
}

template <class T>
void set(const Owned& descriptor, int attribute, int type, const std::vector<T>& values) {
  check(library().set(descriptor.get(), attribute, type, static_cast<std::int64_t>(values.size()),
                      static_cast<const void*>(values.data())),
        "cudnnBackendSetAttribute " + std::to_string(attribute));
}
template <class T>
void set(const Owned& descriptor, int attribute, int type, T value) {
  check(library().set(descriptor.get(), attribute, type, 1, static_cast<const void*>(&value)),
        "cudnnBackendSetAttribute " + std::to_string(attribute));
}
void finalize(const Owned& descriptor, const char* what) {
  check(library().finalize(descriptor.get()), std::string{"cudnnBackendFinalize of "} + what);
}

Owned convolution_3x3() {
  Owned of = made(convolution);
  const std::vector<std::int64_t> ones{1, 1};
  set(of, convolution_dimensions, type_int64, std::int64_t{2});
  set(of, convolution_computes, type_data, data_f32);
  set(of, convolution_mode, type_convolution_mode, cross_correlation);
  for (const int attribute :
       {convolution_dilations, convolution_strides, convolution_paddings_before, convolution_paddings_after})
    set(of, attribute, type_int64, ones);
  finalize(of, "a convolution");
  return of;
}

}  // namespace

const std::string& CudnnOperation::why_not() { return library().why_not; }

CudnnOperation::CudnnOperation(const Driver& driver)
    : driver_{driver},
      handle_{nullptr, nullptr},
      plan_{nullptr, nullptr},
      pack_{nullptr, nullptr},
      rows_{nullptr, nullptr} {
  if (!why_not().empty()) throw Error{ErrorKind::failed, why_not()};
  void* handle = nullptr;
  const int status = library().create(&handle);
  if (status == not_initialized)
    throw Error{ErrorKind::unsupported, "cuDNN does not start on this GPU and driver (status 1001)"};
  check(status, "cudnnCreate");
  handle_ = {handle, library().destroy};
}

CudnnOperation::Owned CudnnOperation::tensor(Tensors element, const std::vector<u64>& lengths,
                                             const std::vector<u64>& strides, bool by_value) {
  const auto signed_of = [](const std::vector<u64>& values) {
    return std::vector<std::int64_t>(values.begin(), values.end());
  };
  Owned made_tensor = made(tensor_of);
  set(made_tensor, tensor_type, type_data, data_type(element));
  set(made_tensor, tensor_lengths, type_int64, signed_of(lengths));
  set(made_tensor, tensor_strides, type_int64, signed_of(strides));
  set(made_tensor, tensor_id, type_int64, tensors_++);
  set(made_tensor, tensor_alignment, type_int64, vector_bytes);
  if (by_value) set(made_tensor, tensor_by_value, type_boolean, true);
  finalize(made_tensor, "a tensor");
  return made_tensor;
}

CudnnOperation::CudnnOperation(const Driver& driver, const ConvolutionShape& shape) : CudnnOperation{driver} {
  const u64 c = shape.channels, size = shape.size;
  const std::vector<u64> image{shape.images, c, size, size}, beside{size * size * c, 1, size * c, c};
  parts_.push_back(tensor(shape.element, image, beside, false));
  parts_.push_back(tensor(shape.element, {c, c, 3, 3}, {9 * c, 1, 3 * c, c}, false));
  parts_.push_back(tensor(shape.element, image, beside, false));
  parts_.push_back(convolution_3x3());
  Owned operation = made(operation_convolution);
  set(operation, convolution_images, type_descriptor, parts_[0].get());
  set(operation, convolution_weights, type_descriptor, parts_[1].get());
  set(operation, convolution_result, type_descriptor, parts_[2].get());
  set(operation, convolution_descriptor, type_descriptor, parts_[3].get());
  set(operation, convolution_alpha, type_float, 1.0F);
  set(operation, convolution_beta, type_float, 0.0F);
  finalize(operation, "the operation");
  plan(operation.get(), "convolution");
  parts_.push_back(std::move(operation));
}

CudnnOperation::CudnnOperation(const Driver& driver, const AttentionShape& shape) : CudnnOperation{driver} {
  const u64 matrix = shape.length * shape.width;
  const std::vector<u64> lengths{shape.batch, shape.heads, shape.length, shape.width};
  for (int i = 0; i < 4; ++i)
    parts_.push_back(tensor(shape.element, lengths, {shape.heads * matrix, matrix, shape.width, 1}, false));
  parts_.push_back(tensor(Tensors::f32, {1, 1, 1, 1}, {1, 1, 1, 1}, true));
  scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.width)));
  Owned operation{nullptr, nullptr};
  try {
    operation = made(operation_attention);
  } catch (const Error& error) {
    throw Error{ErrorKind::unsupported, "this cuDNN has no attention as one operation (cuDNN 9.13 has)"};
  }
  for (int i = 0; i < 4; ++i) set(operation, attention_q + i, type_descriptor, parts_[static_cast<u64>(i)].get());
  set(operation, attention_scale, type_descriptor, parts_[4].get());
  finalize(operation, "the operation");
  plan(operation.get(), "attention");
  parts_.push_back(std::move(operation));
}

CudnnOperation::CudnnOperation(const Driver& driver, const SoftmaxShape& shape) : CudnnOperation{driver} {
  void* rows = nullptr;
  check(library().create_rows(&rows), "cudnnCreateTensorDescriptor");
  rows_ = {rows, library().destroy_rows};
  check(library().set_rows(rows, format_nchw, data_type(shape.element), static_cast<int>(shape.rows),
                           static_cast<int>(shape.length), 1, 1),
        "cudnnSetTensor4dDescriptor");
}

/// Plans a graph of one operation: the first that the library offers and can build.
void CudnnOperation::plan(void* operation, const char* what) {
  Owned graph = made(operation_graph);
  set(graph, graph_operations, type_descriptor, operation);
  set(graph, graph_handle, type_handle, handle_.get());
  finalize(graph, "the graph");
  if (!plan_by(graph.get(), heuristic_a) && !plan_by(graph.get(), heuristic_fallback))
    throw Error{ErrorKind::unsupported, std::string{"cuDNN has no "} + what + " of these lengths for this GPU"};
  std::int64_t count = 0, bytes = 0;
  check(library().get(plan_.get(), plan_workspace, type_int64, 1, &count, &bytes), "cudnnBackendGetAttribute");
  if (bytes > 0) workspace_ = DeviceMemory{driver_, static_cast<u64>(bytes)};
  parts_.push_back(std::move(graph));
}

bool CudnnOperation::plan_by(void* graph, int heuristic) {
  Owned offers = made(heuristics);
  set(offers, heuristics_graph, type_descriptor, graph);
  set(offers, heuristics_mode, type_heuristic, heuristic);
  std::int64_t count = 0;
  if (library().finalize(offers.get()) != success ||
      library().get(offers.get(), heuristics_results, type_descriptor, 0, &count, nullptr) != success)
    return false;
  std::vector<Owned> configs;
  std::vector<void*> found;
  for (std::int64_t i = 0; i < count; ++i) {
    configs.push_back(made(engine_config));
    found.push_back(configs.back().get());
  }
  if (library().get(offers.get(), heuristics_results, type_descriptor, count, &count,
                    static_cast<void*>(found.data())) != success)
    return false;
  for (std::int64_t i = 0; i < count; ++i) {
    Owned one = made(execution_plan);
    set(one, plan_config, type_descriptor, found[static_cast<u64>(i)]);
    set(one, plan_handle, type_handle, handle_.get());
    if (library().finalize(one.get()) != success) continue;
    plan_ = std::move(one);
    parts_.push_back(std::move(configs[static_cast<u64>(i)]));
    return true;
  }
  return false;
}

/// Names the arrays of the next execution.
void CudnnOperation::pack(const std::vector<CUdeviceptr>& arrays) {
  std::vector<void*> pointers;
  std::vector<std::int64_t> ids;
  for (const auto address : arrays) pointers.push_back(reinterpret_cast<void*>(address));
  if (scale_ != 0) pointers.push_back(&scale_);
  for (std::size_t i = 0; i < pointers.size(); ++i) ids.push_back(static_cast<std::int64_t>(i));
  pack_ = made(variant_pack);
  set(pack_, pack_pointers, type_pointer, pointers);
  set(pack_, pack_ids, type_int64, ids);
  set(pack_, pack_workspace, type_pointer, reinterpret_cast<void*>(workspace_.address()));
  finalize(pack_, "the addresses");
  packed_ = arrays;
}

void CudnnOperation::queue(CUstream stream, const std::vector<CUdeviceptr>& arrays) {
  check(library().set_stream(handle_.get(), stream), "cudnnSetStream");
  if (rows_) {
    const float one = 1, zero = 0;
    check(library().softmax(handle_.get(), softmax_accurate, softmax_of_instance, &one, rows_.get(),
                            reinterpret_cast<void*>(arrays[0]), &zero, rows_.get(), reinterpret_cast<void*>(arrays[1])),
          "cudnnSoftmaxForward");
    return;
  }
  if (!pack_ || packed_ != arrays) pack(arrays);
  check(library().execute(handle_.get(), plan_.get(), pack_.get()), "cudnnBackendExecute");
}

}  // namespace linkscope
