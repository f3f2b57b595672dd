#include "transfer/gpus.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "gpu/context.hpp"

namespace linkscope {

std::optional<u32> Gpus::index_of(CUdevice device) const {
  const auto& facts = devices_.facts();
  const auto found = std::find_if(facts.begin(), facts.end(), [&](const auto& one) { return one.handle == device; });
  if (found == facts.end()) return {};
  return static_cast<u32>(found - facts.begin());
}

std::optional<CopyLane> Gpus::lane_of(CUstream stream, CUdevice memory_on) {
  CUcontext context = nullptr;
  const bool of_memory = stream == stream_of_memory && memory_on >= 0;
  stream = driver_stream(stream);
  const bool legacy = stream == nullptr || stream == CU_STREAM_LEGACY;
  if (stream == CU_STREAM_PER_THREAD) return {};  // the helper threads have streams of their own
  if (legacy) {
    if (!of_memory) LINKSCOPE_CU(driver_, cuCtxGetCurrent, &context);
  } else {
    if (!driver_.cuStreamGetCtx) return {};
    const CUresult status = driver_.cuStreamGetCtx(stream, &context);
    if (status == CUDA_ERROR_INVALID_HANDLE || status == CUDA_ERROR_CONTEXT_IS_DESTROYED)
      throw Error{ErrorKind::usage, "the stream does not exist; pass a CUDA stream of this process, or 0"};
    driver_.check(status, "cuStreamGetCtx");
  }
  const std::lock_guard lock{mutex_};
  for (const auto& [known, gpu] : known_)
    if (known == context) return CopyLane{gpu, context, stream};
  CUdevice device = memory_on;
  if (context) {
    const CurrentContext current{driver_, context};
    LINKSCOPE_CU(driver_, cuCtxGetDevice, &device);
  }
  const auto index = index_of(device);
  if (!index) return {};
  const auto& opened = devices_.at(*index);
  if (std::find(known_.begin(), known_.end(), std::pair{opened.context(), *index}) == known_.end())
    known_.emplace_back(opened.context(), *index);
  if (context && opened.context() != context) return {};
  return CopyLane{*index, opened.context(), stream};
}

CUcontext Gpus::any_context() {
  const std::lock_guard lock{mutex_};
  return known_.empty() ? nullptr : known_.front().first;
}

CUcontext Gpus::made_context() {
  const std::lock_guard lock{mutex_};
  if (!known_.empty()) return known_.front().first;
  const Device* opened = devices_.any();
  if (!opened) throw Error{ErrorKind::failed, "no GPU admits this process; see `linkscope doctor`"};
  return opened->context();
}

std::vector<CUcontext> Gpus::contexts() {
  const std::lock_guard lock{mutex_};
  std::vector<CUcontext> found;
  for (const auto& [context, gpu] : known_) found.push_back(context);
  return found;
}

CUfunction Gpus::block_kernel(u32 index) {
  const std::lock_guard lock{mutex_};
  return devices_.at(index).function("copy_blocks", "linkscope_copy_blocks");
}

CUfunction Gpus::pump_kernel(u32 index) {
  const std::lock_guard lock{mutex_};
  return devices_.at(index).function("pump", "linkscope_pump");
}

CUfunction Gpus::copy_kernel(u32 index, bool by_tma) {
  const std::lock_guard lock{mutex_};
  return devices_.at(index).function("device_copy", by_tma ? "linkscope_copy_by_tma" : "linkscope_copy_by_sm");
}

Device& Gpus::at(u32 index) {
  const std::lock_guard lock{mutex_};
  return devices_.at(index);
}

}  // namespace linkscope
