#include "transfer/hops.hpp"

#include <algorithm>

namespace linkscope {

namespace {

/// Whether the driver has the calls for memory that is granted to one GPU.
bool can_grant(const Driver& driver) {
  return driver.cuMemGetAllocationGranularity && driver.cuMemCreate && driver.cuMemAddressReserve && driver.cuMemMap &&
         driver.cuMemSetAccess && driver.cuMemUnmap && driver.cuMemAddressFree && driver.cuMemRelease;
}

}  // namespace

GrantedMemory::GrantedMemory(const Driver& driver, CUdevice owner, CUdevice other, u64 bytes) {
  const auto prop = on_device(owner);
  const u64 whole = whole_granules(driver, prop, bytes);
  physical_ = {driver, prop, whole};
  mapping_ = std::make_unique<Mapping>(driver, physical_, whole, owner);
  mapping_->allow(other);
}

Hops::Lease::~Lease() {
  if (!hop_) return;
  const std::lock_guard lock{hops_->mutex_};
  hops_->entries_[number_].leased = is_broken_;
}

Hops::Lease& Hops::Lease::operator=(Lease&& other) noexcept {
  std::swap(hops_, other.hops_);
  std::swap(number_, other.number_);
  std::swap(hop_, other.hop_);
  std::swap(is_broken_, other.is_broken_);
  return *this;
}

bool Hops::Lease::finish() {
  is_broken_ = !hop_->finish();
  return !is_broken_;
}

bool Hops::can_relay(u32 helper, u32 target) const {
  const auto& facts = gpus_.facts();
  int can = 0;
  return helper != target && helper < facts.size() && can_grant(driver_) && driver_.cuDeviceCanAccessPeer &&
         driver_.cuStreamWaitEvent &&
         driver_.cuDeviceCanAccessPeer(&can, facts[target].handle, facts[helper].handle) == CUDA_SUCCESS && can != 0;
}

Hops::Lease Hops::relay(u32 helper, const CopyLane& lane, Towards towards) {
  return towards == Towards::gpu ? take(Kind::to_gpu, helper, lane.gpu, lane)
                                 : take(Kind::to_host, lane.gpu, helper, lane);
}

Hops::Lease Hops::bounce(u32 from, u32 to, const CopyLane& lane) { return take(Kind::bounce, from, to, lane); }

Hops::Lease Hops::take(Kind kind, u32 first, u32 second, const CopyLane& lane) {
  const std::lock_guard lock{mutex_};
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) {
    return one.kind == kind && one.first == first && one.second == second;
  });
  if (found == entries_.end()) found = entries_.insert(entries_.end(), made(kind, first, second));
  else if (found->leased || (found->latest != lane && !found->hop->is_idle())) return {};
  found->leased = true;
  found->latest = lane;
  return {*this, static_cast<std::size_t>(found - entries_.begin()), found->hop.get()};
}

Hops::Entry Hops::made(Kind kind, u32 first, u32 second) {
  const auto place = [&](u32 gpu) { return LegPlace{gpu, gpus_.at(gpu).context()}; };
  Entry entry{kind, first, second, nullptr, std::make_unique<Hop>(driver_, place(first), place(second), slots)};
  if (kind == Kind::bounce) return entry;
  const auto& facts = gpus_.facts();
  const auto [helper, target] = kind == Kind::to_gpu ? std::pair{first, second} : std::pair{second, first};
  entry.memory =
      std::make_unique<GrantedMemory>(driver_, facts[helper].handle, facts[target].handle, slots * slot_bytes_);
  std::vector<CUdeviceptr> parts;
  for (u64 i = 0; i < slots; ++i) parts.push_back(entry.memory->address() + i * slot_bytes_);
  entry.hop->use(parts);
  return entry;
}

void Hops::clear() {
  const std::lock_guard lock{mutex_};
  entries_.clear();
}

}  // namespace linkscope
