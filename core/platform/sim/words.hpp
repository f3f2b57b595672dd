// Words that one lane sets and another waits for, by looking again and again.
#pragma once
#include <optional>
#include <vector>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {

class Words {
 public:
  explicit Words(const Lanes& lanes) : words_(lanes.words.size()) {}

  /// All are zero, and nobody waits.
  void start_afresh();

  /// Who waits, since when, and by which step.
  struct Waiting {
    u32 runner = 0;
    double since = 0, pace = 1;  // a look takes so many times as long as its step says
    const Flag* flag = nullptr;
    u64 value = 0;
  };
  /// `value` is there from `at` on; gives those that waited for it.
  [[nodiscard]] std::vector<Waiting> set(u32 word, u64 value, double at);
  /// When it sees the value; nothing where it must wait until somebody sets it.
  [[nodiscard]] std::optional<double> wait(const Waiting&);
  /// When who waits sees what is there from `at` on.
  [[nodiscard]] static double seen(const Waiting&, double at);
  /// Somebody who waits for what nobody has set, or null.
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
  std::vector<Word> words_;
};

}  // namespace linkscope::sim
