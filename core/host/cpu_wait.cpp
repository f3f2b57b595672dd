#include "host/cpu_wait.hpp"

#include <fstream>

namespace linkscope {

Seconds waited_for_cpu() {
  std::ifstream counts{"/proc/thread-self/schedstat"};
  u64 ran_ns = 0, waited_ns = 0;
  return counts >> ran_ns >> waited_ns ? Seconds{static_cast<double>(waited_ns) * 1e-9} : Seconds{0};
}

}  // namespace linkscope
