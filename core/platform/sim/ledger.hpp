// Memory in use at each place; sessions return what they take.
#pragma once
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/place.hpp"

namespace linkscope::sim {

class Ledger {
 public:
  /// Throws Error{memory} if the place has less left.
  void take(const Place& at, u64 bytes, u64 capacity) {
    u64& used = in_use_[at];
    if (used + bytes > capacity)
      throw Error{ErrorKind::memory, to_string(at) + " has " + bytes_text(capacity - used) + " of memory left, and " +
                                         bytes_text(bytes) +
                                         " were requested; choose smaller sizes (--sizes), or a machine with more"};
    used += bytes;
  }
  void give_back(const Place& at, u64 bytes) { in_use_[at] -= bytes; }
  [[nodiscard]] u64 in_use(const Place& at) const {
    const auto found = in_use_.find(at);
    return found == in_use_.end() ? 0 : found->second;
  }
  [[nodiscard]] u64 in_use() const {
    u64 all = 0;
    for (const auto& [at, bytes] : in_use_) all += bytes;
    return all;
  }

 private:
  std::map<Place, u64> in_use_;
};

/// The memory of one session, returned with it.
class Holding {
 public:
  explicit Holding(Ledger& ledger) : ledger_{ledger} {}
  ~Holding() {
    for (const auto& [at, bytes] : held_) ledger_.give_back(at, bytes);
  }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

  void take(const Place& at, u64 bytes, u64 capacity) {
    ledger_.take(at, bytes, capacity);
    held_[at] += bytes;
  }
  void give_back(const Place& at, u64 bytes) {
    ledger_.give_back(at, bytes);
    held_[at] -= bytes;
  }

 private:
  Ledger& ledger_;
  std::map<Place, u64> held_;
};

}  // namespace linkscope::sim
