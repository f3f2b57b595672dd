// What tests ask of the fake driver that they run with.
#pragma once
#include <cuda.h>
#include <dlfcn.h>
#include <doctest.h>

namespace linkscope {

/// The fake driver's own calls (tests/fake_cuda/control.hpp).
struct Fake {
  void (*fail)(const char* symbol, unsigned long long after, unsigned long long times, int error);
  unsigned long long (*held)();
  unsigned long long (*calls)(const char* symbol);
  const char* (*called)(unsigned long long number);
};

inline const Fake& fake() {
  static const Fake found = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto symbol = [&]<class F>(F& target, const char* name) {
      target = reinterpret_cast<F>(dlsym(library, name));
      const bool is_found = target != nullptr;
      REQUIRE_MESSAGE(is_found, name);
    };
    Fake made{};
    symbol(made.fail, "fake_cuda_fail");
    symbol(made.held, "fake_cuda_held");
    symbol(made.calls, "fake_cuda_calls");
    symbol(made.called, "fake_cuda_called");
    return made;
  }();
  return found;
}

/// Makes a symbol fail while it lives.
struct Failing {
  explicit Failing(const char* symbol, unsigned long long after = 0, unsigned long long times = ~0ull,
                   CUresult error = CUDA_ERROR_NOT_PERMITTED) {
    fake().fail(symbol, after, times, error);
  }
  ~Failing() { fake().fail(nullptr, 0, 0, 0); }
};

}  // namespace linkscope
