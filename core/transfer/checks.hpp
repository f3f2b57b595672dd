// Tuned copies are compared with the driver's own now and then: a machine may change after it was tuned.
#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "transfer/options.hpp"

namespace linkscope {

class PlainChecks {
 public:
  /// How the next copy is made: as always, or timed by the driver's own copy, or timed by the method.
  enum class Kind : u8 { none, plain, method };
  /// Three checks in a row decide. The first copy of a class pins memory, so the first check is the second copy.
  static constexpr u64 every = 256, first = 1;
  static constexpr std::size_t deciding = 3;
  /// A plain copy of more bytes takes longer than an application should wait for a check (0.2 s at 5 GB/s).
  static constexpr u64 most_bytes = u64{1} << 30;

  [[nodiscard]] Kind next(MethodId, u64 bytes);
  /// The result of a timed copy. A check is a plain copy and then one by the method.
  void add(MethodId, u64 bytes, Kind, double seconds);
  /// Whether the driver's copies of this size were faster in the latest three checks. It never becomes false again.
  [[nodiscard]] bool prefers_plain(MethodId id, u64 bytes) const { return entry(id, bytes).is_plain; }
  /// One sentence for each class that uses plain copies; "" without any.
  [[nodiscard]] std::string text() const;

 private:
  struct Pair {
    double plain_gbps = 0, method_gbps = 0;
  };
  struct Entry {
    std::atomic<u64> copies{0};
    std::atomic<bool> is_plain{false};
    double plain_gbps = 0;   // of a check that the method has not ended; 0: none
    std::vector<Pair> wins;  // of plain copies, in a row
  };
  [[nodiscard]] Entry& entry(MethodId id, u64 bytes) {
    return entries_[static_cast<std::size_t>(id)][class_of(size_classes, bytes)];
  }
  [[nodiscard]] const Entry& entry(MethodId id, u64 bytes) const {
    return entries_[static_cast<std::size_t>(id)][class_of(size_classes, bytes)];
  }
  mutable std::mutex mutex_;  // for the rates
  std::array<std::array<Entry, size_classes.size()>, method_count> entries_;
};

}  // namespace linkscope
