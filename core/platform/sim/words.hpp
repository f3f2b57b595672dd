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

  /// A waiting lane, its start, and its step.
  struct Waiting {
    u32 runner = 0;
    double since = 0, pace = 1;  // factor on the duration of a poll of its step
    const Flag* flag = nullptr;
    u64 value = 0;
  };
  /// `value` is visible from `at`; returns the lanes that waited for it.
  [[nodiscard]] std::vector<Waiting> set(u64 word, u64 value, double at);
  /// What was set last.
  [[nodiscard]] u64 latest(u64 word) const;
  /// The time at which the lane sees the value; nothing if it must wait until somebody sets it.
  [[nodiscard]] std::optional<double> wait(u64 word, const Waiting&);
  /// The time at which a waiting lane sees what is visible from `at`.
  [[nodiscard]] static double seen(const Waiting&, double at);
  /// A lane that waits for a value that nobody has set, or null.
  [[nodiscard]] const Waiting* stuck() const;

 private:
  struct Value {
    u64 value;
    double at;
  };
  struct Word {
    std::vector<Value> values;  // in the order of setting
    std::vector<Waiting> waiting;
  };
  std::map<u64, Word> words_;  // by address; all that any lane names
};

}  // namespace linkscope::sim
