// Blocks that post a list of operations to a channel, and a block that serves one.
#include "putget/device.hpp"
#include "putget/run_task.hpp"

#if __CUDA_ARCH__ >= 700
static_assert(linkscope::Grid::bytes == linkscope::grid_bytes);

extern "C" __global__ void __launch_bounds__(1024) linkscope_post(const linkscope::PostTask task) {
  using namespace linkscope;
  if (task.group == GroupKind::grid) run_posts(task, DeviceMemoryWords{}, Grid{task.grid_words});
  else if (task.group == GroupKind::block) run_posts(task, DeviceMemoryWords{}, Block{});
  else if (task.group == GroupKind::warp) run_posts(task, DeviceMemoryWords{}, Warp{});
  else run_posts(task, DeviceMemoryWords{}, OneThread{});
}

extern "C" __global__ void __launch_bounds__(1024) linkscope_serve(const linkscope::ServeTask task) {
  __shared__ linkscope::Operation operations[linkscope::most_descriptor_words];
  linkscope::serve(task, linkscope::DeviceMemoryWords{}, linkscope::Block{}, operations);
}

/// The same with copies by TMA.
extern "C" __global__ void __launch_bounds__(1024) linkscope_post_tma(const linkscope::PostTask task) {
#if __CUDA_ARCH__ >= 900
  using namespace linkscope;
  __shared__ BulkBuffer buffer;
  if (task.group == GroupKind::grid) run_posts(task, BulkWords{&buffer}, Grid{task.grid_words});
  else run_posts(task, BulkWords{&buffer}, Block{});
#endif
}

extern "C" __global__ void __launch_bounds__(1024) linkscope_serve_tma(const linkscope::ServeTask task) {
#if __CUDA_ARCH__ >= 900
  __shared__ BulkBuffer buffer;
  __shared__ linkscope::Operation operations[linkscope::most_descriptor_words];
  linkscope::serve(task, linkscope::BulkWords{&buffer}, linkscope::Block{}, operations);
#endif
}

/// Adds to a word of this GPU, which no copy engine can do.
extern "C" __global__ void linkscope_add_word(unsigned long long word, unsigned long long value) {
  linkscope::DeviceMemoryWords::add(word, value);
}
#endif
