#include "transfer/registrations.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "host/own_memory.hpp"
#include "host/shared_file.hpp"
#include "transfer/capture.hpp"
#include "transfer/location.hpp"

namespace linkscope {
namespace {

constexpr const char* freed =
    "memory was registered and then freed, so the GPU has its former pages; end a registration before freeing its "
    "memory";

}  // namespace

void Registrations::add(void* start, u64 bytes) {
  if (bytes == 0) throw Error{ErrorKind::usage, "a range of 0 B cannot be registered; name memory of at least 1 B"};
  const auto at = locate_all(driver_, start, bytes);
  if (!at.on_host())
    throw Error{ErrorKind::usage,
                to_string(at) + " cannot be registered, or is pinned in part; name host memory that is not"};
  const Range range{reinterpret_cast<u64>(start), bytes, !can_write(start, bytes)};
  if (range.is_read_only && !can_read(start, bytes))
    throw Error{
        ErrorKind::usage,
        "the range is no memory that this process can read: it was freed, or is shorter than " + bytes_text(bytes)};
  const std::lock_guard lock{mutex_};
  const auto outer = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.pinned && entry.pinned->holds(range.start, range.bytes);
  });
  Entry entry{range, nullptr};
  if (outer != entries_.end()) entry.pinned = outer->pinned;
  else if (driver_.usable() && at.memory == MemoryType::pageable) entry.pinned = pin(range);
  read_only_count_ += entry.protects().is_read_only;
  entries_.push_back(std::move(entry));
  ++count_;
}

std::shared_ptr<Registrations::Range> Registrations::pin(const Range& range) {
  if (!driver_.cuMemHostRegister || !driver_.cuMemHostUnregister)
    throw Error{ErrorKind::unsupported, "this driver has no cuMemHostRegister"};
  if (const u64 held = pinned_bytes(); range.bytes > most_bytes_ || held > most_bytes_ - range.bytes)
    throw Error{ErrorKind::memory, bytes_text(held) + " are registered, and " + bytes_text(range.bytes) +
                                       " more would exceed the bound of " + bytes_text(most_bytes_) +
                                       "; end a registration, or raise LINKSCOPE_TRANSFER_REGISTERED"};
  auto pinned = std::make_shared<Range>(range);
  const DuringCaptures allowed{driver_};
  const CurrentContext current{driver_, gpus_.made_context()};
  const unsigned reading = range.is_read_only ? CU_MEMHOSTREGISTER_READ_ONLY : 0;
  const CUresult status = driver_.cuMemHostRegister(
      to_pointer(range.start), range.bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | reading);
  if (status == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
    throw Error{ErrorKind::usage,
                "a part of the range, or of its first or last page, is pinned already; register all of it at once"};
  try {
    driver_.check(status, "cuMemHostRegister");
  } catch (const Error& error) {
    const bool is_refused = error.kind() == ErrorKind::failed || status == CUDA_ERROR_UNKNOWN;
    const std::string file = is_refused ? shared_file(to_pointer(range.start), range.bytes) : "";
    if (file.empty()) throw;  // for example a lack of memory or a lost GPU, whatever the range is
    throw Error{ErrorKind::usage, "the range is mapped from " + file +
                                      " for writing, and Linux pins no memory that it writes back to a disk; map it "
                                      "for reading (mode \"r\" of numpy.memmap), or copy it without a registration"};
  }
  return pinned;
}

void Registrations::remove(void* start) {
  const std::lock_guard lock{mutex_};
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) {
    return entry.range.start == reinterpret_cast<u64>(start);
  });
  if (found == entries_.rend())
    throw Error{ErrorKind::usage, "no registered range begins here; name the address that was registered"};
  const bool is_alive = can_read(start, found->range.bytes);
  if (found->pinned && found->pinned.use_count() == 1) unpin(*found->pinned);
  read_only_count_ -= found->protects().is_read_only;
  entries_.erase(std::next(found).base());
  --count_;
  if (!is_alive) throw Error{ErrorKind::usage, freed};
}

void Registrations::unpin(const Range& range) {
  const DuringCaptures allowed{driver_};
  finish_work();
  const CurrentContext current{driver_, gpus_.made_context()};
  LINKSCOPE_CU(driver_, cuMemHostUnregister, to_pointer(range.start));
}

void Registrations::finish_work() const {
  if (!driver_.cuCtxSynchronize) return;
  for (const CUcontext context : gpus_.contexts()) {
    const CurrentContext current{driver_, context};
    LINKSCOPE_CU(driver_, cuCtxSynchronize);
  }
}

void Registrations::check_alive(const void* start, u64 bytes) const {
  const auto address = reinterpret_cast<u64>(start);
  const std::lock_guard lock{mutex_};
  const bool is_registered = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.pinned && entry.pinned->holds(address, bytes);
  });
  if (is_registered && !can_read(start, bytes)) throw Error{ErrorKind::usage, freed};
}

void Registrations::check_writable(const void* start, u64 bytes) const {
  const auto begin = reinterpret_cast<u64>(start);
  const std::lock_guard lock{mutex_};
  const bool is_refused = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.protects().is_read_only && entry.protects().meets(begin, bytes);
  });
  if (is_refused)
    throw Error{ErrorKind::usage,
                "the destination was registered when this process could only read it; end that registration first"};
}

void Registrations::clear() {
  const std::lock_guard lock{mutex_};
  try {
    finish_work();
  } catch (const Error&) {  // the GPU is lost, or the driver is shutting down
  }
  for (auto& entry : entries_)
    if (entry.pinned && entry.pinned.use_count() == 1) driver_.cuMemHostUnregister(to_pointer(entry.pinned->start));
    else entry.pinned.reset();
  entries_.clear();
  count_ = read_only_count_ = 0;
}

u64 Registrations::bytes() const {
  const std::lock_guard lock{mutex_};
  return pinned_bytes();
}

u64 Registrations::pinned_bytes() const {
  std::set<const Range*> pinned;
  for (const auto& entry : entries_)
    if (entry.pinned) pinned.insert(entry.pinned.get());
  return std::accumulate(pinned.begin(), pinned.end(), u64{0},
                         [](u64 sum, const Range* range) { return sum + range->bytes; });
}

}  // namespace linkscope
