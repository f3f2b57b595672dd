#include "transfer/hop.hpp"

#include <algorithm>

#include "gpu/context.hpp"

namespace linkscope {
namespace {

/// Whether the work behind which an event was recorded is done.
bool is_done(const Driver& driver, const Event& event) {
  const CUresult status = driver.cuEventQuery(event.get());
  if (status == CUDA_ERROR_NOT_READY) return false;
  driver.check(status, "cuEventQuery");
  return true;
}

}  // namespace

Hop::Leg::Leg(const Driver& driver, const LegPlace& place) {
  const CurrentContext current{driver, place.context};
  stream = std::make_unique<Stream>(driver);
  end = std::make_unique<Event>(driver, CU_EVENT_DISABLE_TIMING);
  lane = {place.gpu, place.context, stream->get()};
}

Hop::Hop(const Driver& driver, const LegPlace& first, const LegPlace& second, u32 slots)
    : driver_{driver}, first_{driver, first}, second_{driver, second}, steps_(slots) {
  const auto add_events = [&](const Leg& leg, std::unique_ptr<Event> Step::* event) {
    const CurrentContext current{driver_, leg.lane.context};
    for (auto& step : steps_) step.*event = std::make_unique<Event>(driver_, CU_EVENT_DISABLE_TIMING);
  };
  add_events(first_, &Step::filled);
  add_events(second_, &Step::emptied);
}

Hop::~Hop() { (void)finish(); }

void Hop::use(const std::vector<CUdeviceptr>& memory) {
  slots_ = std::min(memory.size(), steps_.size());
  next_ = 0;
  for (std::size_t i = 0; i < slots_; ++i) steps_[i].memory = memory[i], steps_[i].used = false;
}

void Hop::wait_for(CUevent event) const {
  for (const auto* leg : {&first_, &second_}) {
    const CurrentContext current{driver_, leg->lane.context};
    LINKSCOPE_CU(driver_, cuStreamWaitEvent, leg->lane.stream, event, CU_EVENT_WAIT_DEFAULT);
  }
}

bool Hop::has_room() const {
  const auto& step = steps_[next_];
  return !step.used || is_done(driver_, *step.emptied);
}

void Hop::queue(CUdeviceptr dst, CUdeviceptr src, u64 bytes) {
  auto& step = steps_[next_];
  next_ = (next_ + 1) % slots_;
  {
    const CurrentContext current{driver_, first_.lane.context};
    // A copy behind a wait for another GPU starts later, and the slot is usually free by now.
    if (step.used && !is_done(driver_, *step.emptied))
      LINKSCOPE_CU(driver_, cuStreamWaitEvent, first_.lane.stream, step.emptied->get(), CU_EVENT_WAIT_DEFAULT);
    LINKSCOPE_CU(driver_, cuMemcpyAsync, step.memory, src, bytes, first_.lane.stream);
    LINKSCOPE_CU(driver_, cuEventRecord, step.filled->get(), first_.lane.stream);
  }
  const CurrentContext current{driver_, second_.lane.context};
  LINKSCOPE_CU(driver_, cuStreamWaitEvent, second_.lane.stream, step.filled->get(), CU_EVENT_WAIT_DEFAULT);
  LINKSCOPE_CU(driver_, cuMemcpyAsync, dst, step.memory, bytes, second_.lane.stream);
  LINKSCOPE_CU(driver_, cuEventRecord, step.emptied->get(), second_.lane.stream);
  step.used = true;
}

void Hop::join(const CopyLane& lane) const {
  for (const auto* leg : {&first_, &second_}) {
    const CurrentContext current{driver_, leg->lane.context};
    LINKSCOPE_CU(driver_, cuEventRecord, leg->end->get(), leg->lane.stream);
  }
  const CurrentContext current{driver_, lane.context};
  for (const auto* leg : {&first_, &second_})
    LINKSCOPE_CU(driver_, cuStreamWaitEvent, lane.stream, leg->end->get(), CU_EVENT_WAIT_DEFAULT);
}

bool Hop::finish() const {
  const CUresult first = driver_.cuStreamSynchronize(first_.lane.stream),
                 second = driver_.cuStreamSynchronize(second_.lane.stream);
  return first == CUDA_SUCCESS && second == CUDA_SUCCESS;
}

bool Hop::is_idle() const { return is_done(driver_, *first_.end) && is_done(driver_, *second_.end); }

}  // namespace linkscope
