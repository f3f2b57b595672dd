#include "gpu/stream.hpp"

namespace linkscope {

std::string why_no_urgent_stream(const Driver& driver) {
  auto why = driver.why_no("cuCtxGetStreamPriorityRange");
  return why.empty() ? driver.why_no("cuStreamCreateWithPriority") : why;
}

Stream::Stream(const Driver& driver, Priority priority) : driver_{driver} {
  if (priority == Priority::usual) {
    LINKSCOPE_CU(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    return;
  }
  int lowest = 0, highest = 0;
  LINKSCOPE_CU(driver_, cuCtxGetStreamPriorityRange, &lowest, &highest);
  LINKSCOPE_CU(driver_, cuStreamCreateWithPriority, &stream_, CU_STREAM_NON_BLOCKING, highest);
}
Stream::~Stream() { driver_.cuStreamDestroy(stream_); }
void Stream::synchronize() const { LINKSCOPE_CU(driver_, cuStreamSynchronize, stream_); }

Event::Event(const Driver& driver, unsigned flags) : driver_{driver} {
  LINKSCOPE_CU(driver_, cuEventCreate, &event_, flags);
}
Event::~Event() { driver_.cuEventDestroy(event_); }

}  // namespace linkscope
