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

/// Copies the arguments in `parameters` for a launch in `context`. find_kernel returns null for an unknown kernel.
using Prepare = std::function<Launch(CUcontext context, void** parameters)>;
[[nodiscard]] const Prepare* find_kernel(const std::string& name);

/// Reads the arguments by the types of the function's parameters.
template <class... A>
Prepare by_types(CUresult (*kernel)(CUcontext, A...)) {
  return [kernel](CUcontext context, void** parameters) -> Launch {
    return [&]<std::size_t... i>(std::index_sequence<i...>) -> Launch {
      return [kernel, arguments = std::tuple<CUcontext, A...>{context, *static_cast<A*>(parameters[i])...}] {
        return std::apply(kernel, arguments);
      };
    }(std::index_sequence_for<A...>{});
  };
}

/// The kernels of core/platform/cuda/kernels/compute.cu and cub.cu.
void add_computations(std::map<std::string, Prepare>& kernels);

}  // namespace fake
