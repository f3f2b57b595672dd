#include "gpu/cufft.hpp"

#include <dlfcn.h>

#include "base/error.hpp"

namespace linkscope {
namespace {

// From cufft.h of CUDA 12 and 13, which have the same values.
constexpr int success = 0, forward = -1;
constexpr int complex_32f = 0x29, complex_64f = 0x69;

struct Library {
  int (*plan_many)(int* plan, int rank, int* n, int* in_embedded, int in_stride, int in_distance, int* out_embedded,
                   int out_stride, int out_distance, int type, int batch) = nullptr;
  int (*destroy)(int plan) = nullptr;
  int (*set_stream)(int plan, CUstream) = nullptr;
  int (*transform)(int plan, void* from, void* to, int direction) = nullptr;
  int (*transform_wide)(int plan, void* from, void* to, int direction) = nullptr;
  std::string why_not;

  Library() {
    void* library = nullptr;
    for (const char* name : {"libcufft.so.12", "libcufft.so.11"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      why_not =
          "cuFFT is not here (neither libcufft.so.12 nor libcufft.so.11 can be loaded): install it, or add its folder "
          "to LD_LIBRARY_PATH";
      return;
    }
    const auto fetch = [&]<class Function>(Function& target, const char* name) {
      target = reinterpret_cast<Function>(dlsym(library, name));
      if (!target && why_not.empty()) why_not = std::string{"cuFFT lacks "} + name;
    };
    fetch(plan_many, "cufftPlanMany");
    fetch(destroy, "cufftDestroy");
    fetch(set_stream, "cufftSetStream");
    fetch(transform, "cufftExecC2C");
    fetch(transform_wide, "cufftExecZ2Z");
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

void check(int status, const char* call) {
  if (status != success)
    throw Error{ErrorKind::failed, std::string{call} + ": cuFFT reports status " + std::to_string(status)};
}

}  // namespace

const std::string& Cufft::why_not() { return library().why_not; }

Cufft::Cufft(int points, int batch, bool wide) : wide_{wide} {
  if (!why_not().empty()) throw Error{ErrorKind::failed, why_not()};
  check(library().plan_many(&plan_, 1, &points, nullptr, 1, points, nullptr, 1, points,
                            wide ? complex_64f : complex_32f, batch),
        "cufftPlanMany");
}

Cufft::~Cufft() { library().destroy(plan_); }

void Cufft::queue(CUstream stream, CUdeviceptr from, CUdeviceptr to) const {
  check(library().set_stream(plan_, stream), "cufftSetStream");
  const auto transform = wide_ ? library().transform_wide : library().transform;
  check(transform(plan_, reinterpret_cast<void*>(from), reinterpret_cast<void*>(to), forward),
        wide_ ? "cufftExecZ2Z" : "cufftExecC2C");
}

}  // namespace linkscope
