#include "gpu/device_work.hpp"

#include <algorithm>
#include <exception>
#include <thread>

namespace linkscope {

void side_by_side(const std::vector<DeviceWork>& all) {
  std::vector<Device*> devices;
  for (const auto& one : all)
    if (std::find(devices.begin(), devices.end(), one.device) == devices.end()) devices.push_back(one.device);
  std::vector<std::exception_ptr> failures(devices.size());
  const auto work_of = [&](std::size_t d) {
    try {
      for (const auto& one : all)
        if (one.device == devices[d]) one.work();
    } catch (...) {
      failures[d] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t d = 1; d < devices.size(); ++d) threads.emplace_back(work_of, d);
    if (!devices.empty()) work_of(0);
  }
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace linkscope
