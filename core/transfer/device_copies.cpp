#include "transfer/device_copies.hpp"

#include <algorithm>
#include <array>

#include "gpu/context.hpp"
#include "transfer/both_gpus.hpp"
#include "transfer/capture.hpp"

namespace linkscope {
namespace {

using namespace literals;

constexpr u64 bytes_of_block = 16_KiB;  // fewer are not worth a thread block: one access of each of 1024 threads
constexpr unsigned threads_of_sm = 1024, threads_of_tma = 32;

/// Whether kernels of the lane's GPU may touch a whole range. Another address would end the context, so a range of which
/// the driver does not say so counts as out of reach.
bool may_touch(const Resources& with, const CopyLane& lane, const void* start, u64 bytes) {
  CUdeviceptr alias = 0, first = 0;
  std::size_t size = 0;
  std::array asked{CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, asked.size()> answers{&alias, &first, &size};
  const auto address = reinterpret_cast<CUdeviceptr>(start);
  const CurrentContext current{with.driver, lane.context};
  return with.driver.cuPointerGetAttributes(asked.size(), asked.data(), answers.data(), address) == CUDA_SUCCESS &&
         alias == address && first <= address && bytes <= first + size - address;
}

bool fits(const Resources& with, const PlannedCopy& copy, MethodId id) {
  const auto& [dst, src, bytes, stream, fresh] = copy.request;
  return copy.lane && !copy.captured && copy.dst.memory == MemoryType::device &&
         copy.src.memory == MemoryType::device && with.options.uses(id, bytes) &&
         with.options.of(id, bytes).sm_blocks && may_touch(with, *copy.lane, dst, bytes) &&
         may_touch(with, *copy.lane, src, bytes);
}

CUdevice own(const Resources& with, const CopyLane& lane) { return with.gpus.facts()[lane.gpu].handle; }

bool is_by_tma(const Resources& with, const PlannedCopy& copy, const Knobs& knobs) {
  constexpr int hopper = 9;
  const u64 skew = reinterpret_cast<u64>(copy.request.dst) ^ reinterpret_cast<u64>(copy.request.src);
  return knobs.tma && skew % vector_bytes == 0 &&
         with.gpus.facts()[copy.lane->gpu].attribute("COMPUTE_CAPABILITY_MAJOR", 0) >= hopper;
}

void copy_by_kernel(const Resources& with, const PlannedCopy& copy, MethodId id, Progress& progress) {
  if (progress.cancelled) throw Cancelled{};
  const auto& lane = *copy.lane;
  auto dst = reinterpret_cast<CUdeviceptr>(copy.request.dst), src = reinterpret_cast<CUdeviceptr>(copy.request.src);
  u64 bytes = copy.request.bytes;
  const auto& knobs = with.options.of(id, bytes);
  const bool by_tma = is_by_tma(with, copy, knobs);
  const u64 worth = (bytes + bytes_of_block - 1) / bytes_of_block;
  std::array<void*, 3> arguments{&dst, &src, &bytes};
  const DuringCaptures allowed{with.driver};
  const CurrentContext current{with.driver, lane.context};
  with.gpus.at(lane.gpu).launch(with.gpus.copy_kernel(lane.gpu, by_tma),
                                static_cast<unsigned>(std::min<u64>(knobs.sm_blocks, worth)),
                                by_tma ? threads_of_tma : threads_of_sm, lane.stream, arguments.data());
  progress.done = bytes;
}

}  // namespace

bool fits_within_gpu(const Resources& with, const PlannedCopy& copy) {
  return copy.lane && copy.dst.device == copy.src.device && copy.dst.device == own(with, *copy.lane) &&
         fits(with, copy, MethodId::within_gpu);
}

void copy_within_gpu(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  copy_by_kernel(with, copy, MethodId::within_gpu, progress);
}

bool fits_between_peers(const Resources& with, const PlannedCopy& copy) {
  if (!copy.lane || copy.dst.device == copy.src.device || !with.driver.cuStreamWaitEvent) return false;
  const CUdevice by = own(with, *copy.lane);
  return (copy.dst.device == by || copy.src.device == by) && fits(with, copy, MethodId::between_peers);
}

void copy_between_peers(const Resources& with, const PlannedCopy& copy, Progress& progress) {
  const BothGpus both{with, copy};
  copy_by_kernel(with, copy, MethodId::between_peers, progress);
  both.join();
}

}  // namespace linkscope
