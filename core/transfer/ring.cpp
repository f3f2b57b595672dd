#include "transfer/ring.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <thread>

#include "gpu/context.hpp"
#include "transfer/capture.hpp"

namespace linkscope {

/// What the threads of one copy share.
struct SlotRing::State {
  const RingWork& work;
  Progress& progress;
  std::atomic<u64> next{0};
  std::atomic<bool> stops{false};
  std::mutex mutex;
  std::exception_ptr failure;
  std::deque<Slot*> slots;  // that no thread has; the first was used the longest time ago

  /// The next chunk that nobody has taken; false if there is none, or if the copy ends early.
  bool take(Chunk& chunk) {
    if (stops) return false;
    if (progress.cancelled) throw Cancelled{};
    const u64 number = next++;
    if (number >= work.chunks.size()) return false;
    chunk = work.chunks[number];
    return true;
  }
  Slot* take_slot() {
    const std::lock_guard lock{mutex};
    Slot* first = slots.front();
    slots.pop_front();
    return first;
  }
  void give_back(Slot* slot) {
    const std::lock_guard lock{mutex};
    slots.push_back(slot);
  }
  void fail(std::exception_ptr with) {
    const std::lock_guard lock{mutex};
    if (!failure) failure = std::move(with);
    stops = true;
  }
};

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

}  // namespace

/// Waits for the GPU. Returns false after `most`, or if the copy stops because another thread failed.
bool SlotRing::wait(State& state, Slot& slot, std::chrono::nanoseconds most) const {
  const auto begin = std::chrono::steady_clock::now();
  while (!slot.is_free(driver_)) {
    if (state.progress.cancelled) throw Cancelled{};
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (state.stops || waited > most) return false;
    if (waited < polling_time) std::this_thread::yield();
    else std::this_thread::sleep_for(20us);
  }
  return true;
}

/// The slot for a thread's next chunk; null if the copy stops.
Slot* SlotRing::free_slot(State& state) const {
  Slot* slot = state.take_slot();
  if (wait(state, *slot, polling_time)) return slot;
  // The stream has other work to do first. With more slots, the caller need not wait for that work.
  if (Slot* more = state.stops ? nullptr : lease_.one_more()) {
    state.give_back(slot);
    return more;
  }
  return wait(state, *slot, forever) ? slot : nullptr;
}

void SlotRing::queue(State& state, Slot& slot, Chunk chunk) const {
  if (state.work.queue_anywhere) return state.work.queue_anywhere(slot, chunk);
  slot.expose(lane_);
  state.work.queue(slot.data(), chunk);
  slot.guard(driver_);
}

void SlotRing::fill_part(State& state) const {
  for (Chunk chunk; state.take(chunk);) {
    Slot* slot = free_slot(state);
    if (!slot) return;
    state.work.by_cpu(slot->data(), chunk);
    queue(state, *slot, chunk);
    state.give_back(slot);
    state.progress.add(chunk.bytes);
  }
}

void SlotRing::empty_part(State& state) const {
  struct Queued {
    Slot* slot;
    Chunk chunk;
  };
  const u64 most = lease_.size() / parts_;  // each thread always finds a slot
  std::deque<Queued> under_way;
  for (Chunk chunk;;) {
    while (under_way.size() < most && state.take(chunk)) {
      Slot* slot = free_slot(state);
      if (!slot) return;
      queue(state, *slot, chunk);
      under_way.push_back({slot, chunk});
    }
    if (under_way.empty()) return;
    const auto oldest = under_way.front();
    under_way.pop_front();
    if (!wait(state, *oldest.slot, forever)) return;
    state.work.by_cpu(oldest.slot->data(), oldest.chunk);
    state.give_back(oldest.slot);
    state.progress.add(oldest.chunk.bytes);
  }
}

void SlotRing::run(const RingWork& work, Movers& movers, Progress& progress,
                   void (SlotRing::*part_of)(State&) const) const {
  State state{work, progress, {}, {}, {}, {}, {}};
  for (std::size_t i = 0; i < lease_.size(); ++i) state.slots.push_back(&lease_[i]);
  movers.run(parts_, [&](u32) {
    try {
      const CurrentContext current{driver_, lane_.context};
      const DuringCaptures allowed{driver_};
      (this->*part_of)(state);
    } catch (...) {
      state.fail(std::current_exception());
    }
  });
  if (state.failure) std::rethrow_exception(state.failure);
}

void SlotRing::to_gpu(const RingWork& work, Movers& movers, Progress& progress) const {
  run(work, movers, progress, &SlotRing::fill_part);
}

void SlotRing::to_host(const RingWork& work, Movers& movers, Progress& progress) const {
  run(work, movers, progress, &SlotRing::empty_part);
}

}  // namespace linkscope
