#include <atomic>
#include <mutex>
#include <thread>

#include "gpu/device_work.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

Gate::Gate(const Driver& driver, Device& device) : driver_{driver} {
  device.use();
  page_ = {driver_, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP};
  words_ = reinterpret_cast<volatile unsigned*>(page_.data());
  address_ = mapped_address(driver_, page_.data());
  open();
}

// Word 0 is the gate; word 64 (another cache line) reports that a kernel gave up waiting.
void Gate::close() const {
  words_[64] = 0;
  words_[0] = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Gate::open() const {
  words_[0] = 1;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Gate::give_up() const {
  words_[64] = 1;
  open();
}

bool Gate::timed_out() const { return words_[64] != 0; }

void Gate::queue(Device& device, CUstream stream, HeldBy held_by, Seconds timeout) const {
  CUdeviceptr word = address_, flag = address_ + 64 * sizeof(unsigned);
  if (held_by == HeldBy::wait) {  // has no time-out of its own: see GateKeeper
    LINKSCOPE_CU(driver_, cuStreamWaitValue32, stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ);
    return;
  }
  auto nanoseconds = static_cast<u64>(timeout.count() * 1e9);
  void* arguments[] = {&word, &nanoseconds, &flag};
  device.launch(device.function("gate", "linkscope_gate"), 1, 1, stream, arguments);
}

GateKeeper::GateKeeper(const Gate& gate, HeldBy held_by, Seconds timeout) : gate_{gate} {
  gate_.close();
  if (held_by != HeldBy::wait) return;
  clock_ = std::jthread{[this, timeout](const std::stop_token& stop) {
    std::unique_lock lock{guard_};
    ended_.wait_for(lock, stop, timeout, [] { return false; });
    if (!stop.stop_requested()) gate_.give_up();
  }};
}

GateKeeper::~GateKeeper() { gate_.open(); }

}  // namespace linkscope
