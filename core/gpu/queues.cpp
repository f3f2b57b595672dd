#include "gpu/queues.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace linkscope {
namespace {

constexpr const char* variable = "CUDA_DEVICE_MAX_CONNECTIONS";

}  // namespace

u32 hardware_queues() {
  constexpr u32 otherwise = 8;
  const char* text = std::getenv(variable);
  const int asked = text ? std::atoi(text) : 0;
  return asked > 0 ? std::min(static_cast<u32>(asked), most_hardware_queues) : otherwise;
}

void ask_for_all_hardware_queues() { setenv(variable, std::to_string(most_hardware_queues).c_str(), 0); }

}  // namespace linkscope
