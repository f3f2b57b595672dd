#include "gpu/stream.hpp"

namespace linkscope {

Stream::Stream(const Driver& driver) : driver_{driver} {
  LINKSCOPE_CU(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
}
Stream::~Stream() { driver_.cuStreamDestroy(stream_); }
void Stream::synchronize() const { LINKSCOPE_CU(driver_, cuStreamSynchronize, stream_); }

Event::Event(const Driver& driver, unsigned flags) : driver_{driver} {
  LINKSCOPE_CU(driver_, cuEventCreate, &event_, flags);
}
Event::~Event() { driver_.cuEventDestroy(event_); }

}  // namespace linkscope
