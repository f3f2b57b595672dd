// A block that posts a list of operations to a channel, and a block that serves one.
#include "putget/device.hpp"
#include "putget/run_task.hpp"

#if __CUDA_ARCH__ >= 700
extern "C" __global__ void __launch_bounds__(1024) linkscope_post(const linkscope::PostTask task) {
  using namespace linkscope;
  if (task.group == GroupKind::block) run_posts(task, DeviceMemoryWords{}, Block{});
  else if (task.group == GroupKind::warp) run_posts(task, DeviceMemoryWords{}, Warp{});
  else run_posts(task, DeviceMemoryWords{}, OneThread{});
}

extern "C" __global__ void __launch_bounds__(1024) linkscope_serve(const linkscope::ServeTask task) {
  __shared__ linkscope::Operation operations[linkscope::most_descriptor_words];
  linkscope::serve(task, linkscope::DeviceMemoryWords{}, linkscope::Block{}, operations);
}

/// Adds to a word of this GPU, which no copy engine can do.
extern "C" __global__ void linkscope_add_word(unsigned long long word, unsigned long long value) {
  linkscope::DeviceMemoryWords::add(word, value);
}
#endif
