// Words that one lane sets and another polls.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

class Words {
 public:
  explicit Words(const Lanes&);

  /// Initially all words are zero and no lane waits.
  void start_afresh();

  /// A waiting lane, its start, and its step. It waits for the words from `next` to `end`, one after the other.
  struct Waiting {
    u32 runner = 0;
    double since = 0, pace = 1;  // factor on the duration of a poll of its step
    const Flag* flag = nullptr;
    u64 value = 0;
    u64 next = 0, end = 0;
    double seen = 0;  // when it has seen those before
  };
  /// A value is visible from `at`; the first words of a message that has several are visible from `first`.
  struct Value {
    u64 value = 0;
    double at = 0, first = 0;
  };
  /// Returns the lanes that waited for the value, which wait() takes again.
  [[nodiscard]] std::vector<Waiting> set(u64 word, const Value&);
  /// What was set last.
  [[nodiscard]] u64 latest(u64 word) const;
  /// The time at which the lane has seen the value in all of its words; nothing if it must wait until somebody sets one.
  [[nodiscard]] std::optional<double> wait(Waiting);
  /// A lane that waits for a value that nobody has set, or null.
  [[nodiscard]] const Waiting* stuck() const;

 private:
  struct Word {
    std::vector<Value> values;  // in the order of setting
    std::vector<Waiting> waiting;
  };
  /// The time at which a waiting lane has seen a value, and has read the words that come with it.
  [[nodiscard]] static double seen(const Waiting&, const Value&);

  std::map<u64, Word> words_;  // by address; all that any lane names
};

}  // namespace linkscope::sim
