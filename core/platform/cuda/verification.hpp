// How the work of steps is checked: what they wrote, read, added or followed since the destinations were last poisoned.
#pragma once
#include <deque>
#include <functional>
#include <vector>

#include "gpu/device_work.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {

/// Seed of the pattern that a kernel writes.
inline constexpr u64 written_seed = 0x7772697474656E21ull;

/// Seed of the pattern of a region whose contents several processes know.
[[nodiscard]] constexpr u64 common_seed(u32 region) { return 0x7368617265640000ull + region; }

/// The seed of a region's pattern, also of another process's region.
[[nodiscard]] u64 seed_of(const CudaSession&, u32 region);

/// Comparisons that are made side by side; those of one GPU, or of the host, in order.
class Checks {
 public:
  using Check = std::function<void(Verdict&)>;
  Checks() = default;
  Checks(const Checks&) = delete;
  Checks& operator=(const Checks&) = delete;

  void add(Device*, Check);
  /// Makes all comparisons and combines their results.
  [[nodiscard]] Verdict run() const;

 private:
  std::vector<DeviceWork> work_;
  std::deque<Verdict> verdicts_;
};

/// The combined result of two comparisons; the first wrong byte is the earlier one's.
[[nodiscard]] Verdict both(Verdict, const Verdict&);
/// Adds wrong bytes to a verdict, if any: the first at `offset` of the span's region.
void add_wrong(Verdict&, u64 bytes, const CudaSession&, const Span&, u64 offset, const char* what = "");
/// The result of an actor with a GPU.
[[nodiscard]] u64 result_of(const CudaSession&, const ActorState&);

// Each adds comparisons for an actor's iterations. The arguments outlive the checks.

/// Of memory that was copied, with the contents of its source.
void check_copied(const CudaSession&, const ActorState&, const Span& from, const Span& to, Checks&);
void check_pairs(const CudaSession&, const ActorState&, const Kernel&, Checks&);
/// Of memory that was written, with the pattern of `written_seed`, and of the gaps between lines.
void check_write(const CudaSession&, const ActorState&, const Kernel&, Checks&);
/// Of the sum of all that was read, with the sum of the memory.
void check_read(const CudaSession&, const ActorState&, const Kernel&, Checks&);
/// Of the sum of the memory, with the number of additions.
void check_additions(const CudaSession&, const ActorState&, const Kernel&, Checks&);
/// Of the address that a chase reached, with the address that the chain gives.
void check_chase(const CudaSession&, const ActorState&, const Kernel&, Checks&);

}  // namespace linkscope
