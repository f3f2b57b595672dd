// The kernels of the fake GPUs: C++ functions by kernel name.
#pragma once
#include <cuda.h>

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace fake {

/// A launch with copied arguments, ready to run. Returns the status that the GPU would report.
using Launch = std::function<CUresult()>;

/// Copies the arguments in `parameters` for a launch of so many blocks in `context`. find_kernel returns null for an unknown
/// kernel.
using Prepare = std::function<Launch(CUcontext context, void** parameters, unsigned blocks)>;
[[nodiscard]] const Prepare* find_kernel(const std::string& name);

/// Copies the arguments by their types, for `call`.
template <class... A, class Call>
Launch with_arguments(void** parameters, Call call) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) -> Launch {
    return [call, arguments = std::tuple<A...>{*static_cast<A*>(parameters[i])...}] {
      return std::apply(call, arguments);
    };
  }(std::index_sequence_for<A...>{});
}

/// Reads the arguments by the types of the function's parameters.
template <class... A>
Prepare by_types(CUresult (*kernel)(CUcontext, A...)) {
  return [kernel](CUcontext context, void** parameters, unsigned) {
    return with_arguments<A...>(parameters, [=](A... arguments) { return kernel(context, arguments...); });
  };
}

/// The number of blocks of a launch, for functions whose blocks differ.
struct Blocks {
  unsigned count;
};
template <class... A>
Prepare by_types(CUresult (*kernel)(CUcontext, Blocks, A...)) {
  return [kernel](CUcontext context, void** parameters, unsigned blocks) {
    return with_arguments<A...>(parameters,
                                [=](A... arguments) { return kernel(context, Blocks{blocks}, arguments...); });
  };
}

/// The kernels of core/platform/cuda/kernels/compute.cu and cub.cu.
void add_computations(std::map<std::string, Prepare>& kernels);

/// The kernels of core/platform/cuda/kernels/block.cu.
void add_blocks(std::map<std::string, Prepare>& kernels);

}  // namespace fake
