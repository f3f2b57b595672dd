#include "transfer/asynchronous.hpp"

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "transfer/capture.hpp"

namespace linkscope {

AsynchronousCopy::AsynchronousCopy(Transfers& transfers, const CopyRequest& request)
    : transfers_{transfers}, request_{request} {
  const auto& driver = transfers_.driver();
  const PlannedCopy copy = transfers_.look_up(request);
  lane_ = copy.lane;
  if (!driver.usable() && driver_stream(request_.stream))
    throw Error{ErrorKind::usage, "a copy on a stream needs a GPU, and " + driver.why_not()};
  if (!lane_ && driver_stream(request_.stream))
    throw Error{ErrorKind::usage, "an asynchronous copy needs a stream of a GPU's primary context, or stream 0"};
  if (lane_) {
    const CurrentContext current{driver, lane_->context};
    // The event below would draw the copy's own stream into the graph.
    if (is_captured(driver, lane_->stream))
      throw Error{
          ErrorKind::usage,
          "the stream is captured into a graph, and a copy in the background cannot be; start it before or after "
          "the capture, or make a copy of the stream (ls_copy, linkscope.copy), which the graph repeats"};
    const DuringCaptures allowed{driver};
    stream_ = std::make_unique<Stream>(driver);
    const Event before{driver, CU_EVENT_DISABLE_TIMING};
    LINKSCOPE_CU(driver, cuEventRecord, before.get(), lane_->stream);
    LINKSCOPE_CU(driver, cuStreamWaitEvent, stream_->get(), before.get(), CU_EVENT_WAIT_DEFAULT);
    transfers_.follow_other_gpu(copy, stream_->get());
    request_.stream = stream_->get();
  }
  thread_ = std::jthread{[this] { run(); }};
}

AsynchronousCopy::~AsynchronousCopy() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

void AsynchronousCopy::run() {
  try {
    const DuringCaptures allowed{transfers_.driver()};
    std::optional<CurrentContext> current;
    if (lane_) current.emplace(transfers_.driver(), lane_->context);
    try {
      transfers_.copy_large(request_, progress_);
    } catch (...) {
      // The GPU may still read or write the caller's memory, which is the caller's own again after the end.
      if (stream_) transfers_.driver().cuStreamSynchronize(stream_->get());
      throw;
    }
    if (stream_) stream_->synchronize();
  } catch (...) {
    failure_ = std::current_exception();
  }
  ended_ = true;
}

void AsynchronousCopy::wait() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace linkscope
