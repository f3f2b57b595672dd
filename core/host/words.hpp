// A CPU thread that performs ops (base/actor_ops.hpp): it sets words, waits for others by polling, and moves data between.
#pragma once
#include <optional>
#include <span>

#include "base/actor_ops.hpp"
#include "base/units.hpp"

namespace linkscope {

/// The CPU's memory. Addresses are those of this process.
struct CpuMemory {
  u64 sum = 0;  // of all that was loaded

  [[nodiscard]] static Word acquire(Word word);
  [[nodiscard]] static Word now_ns();
  static void set(Word word, Word value);
  [[nodiscard]] bool wait(Word word, Word value, Word timeout_ns) { return poll(*this, word, value, timeout_ns); }
  static void fence();
  static void copy(Word to, Word from, Word bytes);
  void load(Word from, Word bytes);
  static void store(Word to, Word bytes, Word seed, Word first_index);
};

/// `count` iterations from `first`; adds what it loads to `sum`.
[[nodiscard]] WaitedInVain perform_on_cpu(std::span<const ActorOp>, u64 first, u64 count, u64& sum);

/// Iteration i sets `set_value` + i * `set_step`, and waits until the other word is at least `wait_value` + i *
/// `wait_step`.
struct WordLoop {
  u64 set_value = 0, set_step = 0, wait_value = 0, wait_step = 0, count = 0;
  bool waits_first = false;
  double timeout_s = 2;  // of each wait
};

/// The ops of a loop that sets one word and waits for another.
[[nodiscard]] ActorOps ops_of(Word set, Word wait, const WordLoop&);
/// The value that a loop's wait did not see.
[[nodiscard]] std::optional<u64> value_in_vain(const WordLoop&, WaitedInVain);
/// Returns the value that did not arrive in time, if any.
[[nodiscard]] std::optional<u64> exchange_words(u64* set, u64* wait, const WordLoop&);

}  // namespace linkscope
