// A CPU thread that sets one word and waits for another, by polling.
#pragma once
#include <optional>

#include "base/units.hpp"

namespace linkscope {

/// Iteration i sets `set_value` + i * `set_step`, and waits until the other word is at least `wait_value` + i *
/// `wait_step`.
struct WordLoop {
  u64 set_value = 0, set_step = 0, wait_value = 0, wait_step = 0, count = 0;
  bool waits_first = false;
  double timeout_s = 2;  // of each wait
};

/// Returns the value that did not arrive in time, if any.
[[nodiscard]] std::optional<u64> exchange_words(u64* set, u64* wait, const WordLoop&);

}  // namespace linkscope
