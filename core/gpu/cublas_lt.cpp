#include "gpu/cublas_lt.hpp"

#include <dlfcn.h>

#include "base/error.hpp"

namespace linkscope {
namespace {

// From cublasLt.h and library_types.h of CUDA 12 and 13, which have the same values.
constexpr int success = 0, not_supported = 15, transposition = 1, compute_32f = 68;
constexpr int real_32f = 0, real_16bf = 14, real_e4m3 = 28, transpose_a = 3;

/// The functions in use.
struct Library {
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*create_product)(void** product, int compute, int scale) = nullptr;
  int (*set)(void* product, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*destroy_product)(void* product) = nullptr;
  int (*create_layout)(void** layout, int type, u64 rows, u64 columns, std::int64_t stride) = nullptr;
  int (*destroy_layout)(void* layout) = nullptr;
  int (*create_preference)(void** preference) = nullptr;
  int (*destroy_preference)(void* preference) = nullptr;
  int (*choose)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference, int wanted,
                void* choices, int* found) = nullptr;
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                  void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                  const void* algorithm, void* workspace, std::size_t workspace_bytes, CUstream) = nullptr;
  std::string why_not;

  Library() {
    void* library = nullptr;
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      why_not =
          "cuBLASLt is not here (neither libcublasLt.so.13 nor libcublasLt.so.12 can be loaded): install cuBLAS, or "
          "add "
          "its folder to LD_LIBRARY_PATH";
      return;
    }
    const auto fetch = [&]<class Function>(Function& target, const char* name) {
      target = reinterpret_cast<Function>(dlsym(library, name));
      if (!target && why_not.empty()) why_not = std::string{"cuBLASLt lacks "} + name;
    };
    fetch(create, "cublasLtCreate");
    fetch(destroy, "cublasLtDestroy");
    fetch(create_product, "cublasLtMatmulDescCreate");
    fetch(set, "cublasLtMatmulDescSetAttribute");
    fetch(destroy_product, "cublasLtMatmulDescDestroy");
    fetch(create_layout, "cublasLtMatrixLayoutCreate");
    fetch(destroy_layout, "cublasLtMatrixLayoutDestroy");
    fetch(create_preference, "cublasLtMatmulPreferenceCreate");
    fetch(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    fetch(choose, "cublasLtMatmulAlgoGetHeuristic");
    fetch(multiply, "cublasLtMatmul");
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

void check(int status, const char* call) {
  if (status != success)
    throw Error{ErrorKind::failed, std::string{call} + ": cuBLASLt reports status " + std::to_string(status)};
}

template <class Create>
void* made(const char* call, Create create) {
  if (!library().why_not.empty()) throw Error{ErrorKind::failed, library().why_not};
  void* object = nullptr;
  check(create(&object), call);
  return object;
}

void* layout(int type, u64 rows, u64 columns) {
  return made("cublasLtMatrixLayoutCreate", [&](void** to) {
    return library().create_layout(to, type, rows, columns, static_cast<std::int64_t>(rows));
  });
}

}  // namespace

const std::string& Fp8Product::why_not() { return library().why_not; }

Fp8Product::Fp8Product(u64 m, u64 n, u64 k)
    : handle_{made("cublasLtCreate", [](void** to) { return library().create(to); }), library().destroy},
      product_{made("cublasLtMatmulDescCreate",
                    [](void** to) { return library().create_product(to, compute_32f, real_32f); }),
               library().destroy_product},
      a_{layout(real_e4m3, k, m), library().destroy_layout},
      b_{layout(real_e4m3, k, n), library().destroy_layout},
      c_{layout(real_16bf, m, n), library().destroy_layout} {
  check(library().set(product_.get(), transpose_a, &transposition, sizeof transposition),
        "cublasLtMatmulDescSetAttribute");
  choose();
}

void Fp8Product::choose() {
  const Owned preference{
      // no memory besides the matrices
      made("cublasLtMatmulPreferenceCreate", [](void** to) { return library().create_preference(to); }),
      library().destroy_preference};
  int found = 0;
  const int status = library().choose(handle_.get(), product_.get(), a_.get(), b_.get(), c_.get(), c_.get(),
                                      preference.get(), 1, &choice_, &found);
  if (status == not_supported || (status == success && found == 0))
    throw Error{ErrorKind::unsupported, "cuBLASLt has no product of fp8 (e4m3) of these lengths for this GPU"};
  check(status, "cublasLtMatmulAlgoGetHeuristic");
}

void Fp8Product::queue(CUstream stream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c) const {
  const float one = 1, zero = 0;
  const auto at = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  check(library().multiply(handle_.get(), product_.get(), &one, at(a), a_.get(), at(b), b_.get(), &zero, at(c),
                           c_.get(), at(c), c_.get(), choice_.algorithm, nullptr, 0, stream),
        "cublasLtMatmul");
}

}  // namespace linkscope
