#include "transfer/both_gpus.hpp"

#include "gpu/context.hpp"

namespace linkscope {

BothGpus::BothGpus(const Resources& with, const PlannedCopy& copy) : driver_{with.driver}, lane_{*copy.lane} {
  const CUstream stream = copy.request.stream;
  if (stream && stream != CU_STREAM_LEGACY) return;
  for (const auto& end : {copy.src, copy.dst})
    if (const auto gpu = with.gpus.index_of(end.device); gpu && *gpu != lane_.gpu)
      others_.push_back({*gpu, with.gpus.at(*gpu).context(), nullptr});
  for (const auto& other : others_) wait(lane_, other);
}

void BothGpus::join() const {
  for (const auto& other : others_) wait(other, lane_);
}

void BothGpus::wait(const CopyLane& waits, const CopyLane& for_work_of) const {
  const CurrentContext there{driver_, for_work_of.context};
  const Event reached{driver_, CU_EVENT_DISABLE_TIMING};
  LINKSCOPE_CU(driver_, cuEventRecord, reached.get(), for_work_of.stream);
  const CurrentContext here{driver_, waits.context};
  LINKSCOPE_CU(driver_, cuStreamWaitEvent, waits.stream, reached.get(), CU_EVENT_WAIT_DEFAULT);
}

}  // namespace linkscope
