#include "transfer/arena.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace linkscope {

void Slot::guard(const Driver& driver) {
  if (events_.size() <= lane_.gpu) events_.resize(lane_.gpu + 1);
  auto& event = events_[lane_.gpu];
  if (!event) event = std::make_unique<Event>(driver, CU_EVENT_DISABLE_TIMING);
  LINKSCOPE_CU(driver, cuEventRecord, event->get(), lane_.stream);
  pending_ = event.get();
  exposed_ = false;
}

bool Slot::is_free(const Driver& driver) {
  if (exposed_) return false;
  if (!pending_) return true;
  const CUresult status = driver.cuEventQuery(pending_->get());
  if (status == CUDA_ERROR_NOT_READY) return false;
  driver.check(status, "cuEventQuery");
  pending_ = nullptr;
  return true;
}

bool Slot::recover(const Driver& driver) {
  if (driver.cuStreamSynchronize(lane_.stream) != CUDA_SUCCESS) return false;
  exposed_ = false;
  pending_ = nullptr;
  return true;
}

void Slot::finish(const Driver& driver) {
  if (pending_) driver.cuEventSynchronize(pending_->get());
  pending_ = nullptr;
}

Arena::Lease::~Lease() {
  arena_->give_back(slots_);
  arena_->give_back(more_);
}

void Arena::clear() {
  const std::lock_guard lock{mutex_};
  for (const auto& entry : entries_) entry.slot->finish(driver_);
  entries_.clear();
  segments_.clear();
}

u64 Arena::allocated_bytes() const {
  const std::lock_guard lock{mutex_};
  return entries_.size() * slot_bytes_;
}

Arena::Lease Arena::take(u32 wanted, const CopyLane& lane) {
  const std::lock_guard lock{mutex_};
  return lease(wanted, &lane);
}

Arena::Lease Arena::take_free(u32 wanted) {
  const std::lock_guard lock{mutex_};
  return lease(wanted, nullptr);
}

/// `lane`: whose earlier work slots may wait for; null: for none.
Arena::Lease Arena::lease(u32 wanted, const CopyLane* lane) {
  std::vector<Slot*> taken;
  taken.reserve(wanted);
  try {
    // Few slots fit into the CPU's caches better than many, so the arena grows last.
    add_ready(taken, wanted);
    if (lane) add_waiting(taken, wanted, *lane);
    grow(taken, wanted);
  } catch (...) {
    for (auto& entry : entries_)
      if (std::find(taken.begin(), taken.end(), entry.slot.get()) != taken.end()) entry.leased = false;
    throw;
  }
  return {*this, std::move(taken)};
}

Slot* Arena::one_more(std::vector<Slot*>& taken) {
  const std::lock_guard lock{mutex_};
  const auto before = taken.size();
  const auto wanted = static_cast<u32>(before + 1);
  add_ready(taken, wanted);
  grow(taken, wanted);
  return taken.size() == before ? nullptr : taken.back();
}

void Arena::add_ready(std::vector<Slot*>& taken, u32 wanted) {
  for (auto& entry : entries_) {
    if (taken.size() >= wanted) return;
    if (entry.leased || !entry.slot->is_free(driver_)) continue;
    entry.leased = true;
    taken.push_back(entry.slot.get());
  }
}

void Arena::add_waiting(std::vector<Slot*>& taken, u32 wanted, const CopyLane& lane) {
  for (auto& entry : entries_) {
    if (taken.size() >= wanted) return;
    if (entry.leased || !entry.slot->waits_for(lane)) continue;
    entry.leased = true;
    taken.push_back(entry.slot.get());
  }
}

void Arena::grow(std::vector<Slot*>& taken, u32 wanted) {
  const u64 room = bytes_ / slot_bytes_ - std::min<u64>(bytes_ / slot_bytes_, entries_.size());
  const u64 more = std::min<u64>(wanted - std::min<u64>(wanted, taken.size()), room);
  if (more == 0) return;
  try {
    segments_.emplace_back(driver_, more * slot_bytes_, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory || entries_.empty()) throw;
    bytes_ = entries_.size() * slot_bytes_;  // the machine pins no more: later copies do not ask again
    return;
  }
  for (u64 i = 0; i < more; ++i) {
    entries_.push_back({std::make_unique<Slot>(segments_.back().data() + i * slot_bytes_), true});
    taken.push_back(entries_.back().slot.get());
  }
}

void Arena::give_back(const std::vector<Slot*>& slots) {
  const std::lock_guard lock{mutex_};
  for (auto& entry : entries_)
    if (std::find(slots.begin(), slots.end(), entry.slot.get()) != slots.end())
      entry.leased = entry.slot->is_exposed() && !entry.slot->recover(driver_);
}

}  // namespace linkscope
