#include "gpu/cublas.hpp"

#include <dlfcn.h>

#include <array>

#include "base/error.hpp"

namespace linkscope {
namespace {

// From cublas_api.h and library_types.h of CUDA 12 and 13, which have the same values.
constexpr int success = 0, no_transposition = 0, default_algorithm = -1;
enum DataType : int { real_32f = 0, real_64f = 1, real_16f = 2, real_16bf = 14, real_e4m3 = 28 };
enum ComputeType : int { compute_32f = 68, compute_64f = 70, compute_32f_fast_tf32 = 77 };

struct Types {
  const char* name;
  u64 bytes;
  DataType data;
  ComputeType compute;
};
constexpr std::array<Types, 6> types{{{"f32", 4, real_32f, compute_32f},
                                      {"f64", 8, real_64f, compute_64f},
                                      {"bf16", 2, real_16bf, compute_32f},
                                      {"tf32", 4, real_32f, compute_32f_fast_tf32},
                                      {"fp8", 1, real_e4m3, compute_32f},
                                      {"f16", 2, real_16f, compute_32f}}};

const Types& types_of(Element element) { return types[static_cast<std::size_t>(element)]; }

/// The functions in use, with the versions of their names.
struct Library {
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, CUstream) = nullptr;
  int (*gemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
              DataType, int lda, const void* b, DataType, int ldb, const void* beta, void* c, DataType, int ldc,
              ComputeType, int algorithm) = nullptr;
  int (*solve)(void* handle, int side, int fill, int transpose, int diagonal, int m, int n, const double* alpha,
               const double* a, int lda, double* b, int ldb) = nullptr;
  std::string why_not;

  Library() {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      why_not =
          "cuBLAS is not here (neither libcublas.so.13 nor libcublas.so.12 can be loaded): install it, or add its "
          "folder to LD_LIBRARY_PATH";
      return;
    }
    const auto fetch = [&]<class Function>(Function& target, const char* name) {
      target = reinterpret_cast<Function>(dlsym(library, name));
      if (!target && why_not.empty()) why_not = std::string{"cuBLAS lacks "} + name;
    };
    fetch(create, "cublasCreate_v2");
    fetch(destroy, "cublasDestroy_v2");
    fetch(set_stream, "cublasSetStream_v2");
    fetch(gemm, "cublasGemmEx");
    fetch(solve, "cublasDtrsm_v2");
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

void check(int status, const char* call) {
  if (status != success)
    throw Error{ErrorKind::failed, std::string{call} + ": cuBLAS reports status " + std::to_string(status)};
}

template <class T>
T* pointer(CUdeviceptr address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

std::optional<Element> parse_element(std::string_view name) {
  for (std::size_t i = 0; i < types.size(); ++i)
    if (name == types[i].name) return static_cast<Element>(i);
  return {};
}

u64 bytes_of(Element element) { return types_of(element).bytes; }

const std::string& Cublas::why_not() { return library().why_not; }

Cublas::Cublas() {
  if (!why_not().empty()) throw Error{ErrorKind::failed, why_not()};
  check(library().create(&handle_), "cublasCreate");
}

Cublas::~Cublas() { library().destroy(handle_); }

void Cublas::queue(CUstream stream, const Gemm& gemm) const {
  check(library().set_stream(handle_, stream), "cublasSetStream");
  const auto& type = types_of(gemm.element);
  const float one = 1, zero = 0;
  const double one_64 = 1, zero_64 = 0;
  const bool wide = type.compute == compute_64f;
  const void *alpha = wide ? static_cast<const void*>(&one_64) : &one,
             *beta = wide ? static_cast<const void*>(&zero_64) : &zero;
  const auto at = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  check(library().gemm(handle_, no_transposition, no_transposition, gemm.m, gemm.n, gemm.k, alpha, at(gemm.a),
                       type.data, gemm.m, at(gemm.b), type.data, gemm.k, beta, at(gemm.c), type.data, gemm.m,
                       type.compute, default_algorithm),
        "cublasGemmEx");
}

void Cublas::subtract_product(CUstream stream, int m, int n, int k, const Columns& a, const Columns& b,
                              const Columns& c) const {
  check(library().set_stream(handle_, stream), "cublasSetStream");
  const double minus_one = -1, one = 1;
  check(library().gemm(handle_, no_transposition, no_transposition, m, n, k, &minus_one, pointer<void>(a.at), real_64f,
                       a.stride, pointer<void>(b.at), real_64f, b.stride, &one, pointer<void>(c.at), real_64f, c.stride,
                       compute_64f, default_algorithm),
        "cublasGemmEx");
}

void Cublas::solve(CUstream stream, Triangle triangle, int m, int n, const Columns& a, const Columns& b) const {
  check(library().set_stream(handle_, stream), "cublasSetStream");
  constexpr int left = 0, right = 1, lower = 0, upper = 1, given_diagonal = 0, unit_diagonal = 1;
  const double one = 1;
  const bool from_left = triangle == Triangle::unit_lower_from_left;
  check(library().solve(handle_, from_left ? left : right, from_left ? lower : upper, no_transposition,
                        from_left ? unit_diagonal : given_diagonal, m, n, &one, pointer<double>(a.at), a.stride,
                        pointer<double>(b.at), b.stride),
        "cublasDtrsm");
}

}  // namespace linkscope
