// What runs a Program: the machine at hand, or a model of one in virtual time. Nothing else in the core is virtual.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "program/program.hpp"

namespace linkscope {

/// "Yes", or "no, because …".
struct Support {
  std::string why_not;
  explicit operator bool() const { return why_not.empty(); }
  static Support no(std::string reason) { return {std::move(reason)}; }
};

/// Why a GPU of so many SMs does not have the one of that number.
[[nodiscard]] inline std::string why_no_sm(const Place& gpu, u32 sm, u32 sms) {
  return to_string(gpu) + " has no SM " + std::to_string(sm) + ": it has " + std::to_string(sms) +
         " SMs, numbered from 0";
}

/// Where a machine's own time went, since a program was prepared. All zero on a model.
struct Spent {
  Seconds memory{0};      // allocated, placed, filled
  Seconds rehearsals{0};  // steps run for the first time, and batches queued to see whether they block
  Seconds caches{0};      // flushed before a sample
  Seconds samples{0};     // what is timed, with queueing it and waiting for it
  Seconds comparing{0};   // destinations poisoned and compared
};

/// Adds the time of a block to what is spent.
class Clocked {
 public:
  explicit Clocked(Seconds& sum) : sum_{sum} {}
  ~Clocked() { sum_ += std::chrono::steady_clock::now() - since_; }
  Clocked(const Clocked&) = delete;
  Clocked& operator=(const Clocked&) = delete;

 private:
  Seconds& sum_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// A prepared program: its memory is allocated, placed, filled and checked, and every step has run once. Destroying it
/// gives everything back to the platform.
struct Session {
  virtual ~Session() = default;
  Seconds expected_loop{0};  // one iteration of everybody's loop, as it took when every step ran once; 0: not known
  Spent spent;
};

/// What to do in one run(): `samples` times, for each batch in turn, one sample with batch[a] iterations of actor a's
/// loop. A batch of zeros measures the stamps themselves. Batches are interleaved so that drift meets all alike.
struct Order {
  u32 samples = 1;
  std::vector<std::vector<u32>> batches;
  bool verify = false;  // compare every destination slice that was written, after the last sample, outside the timing
};

/// Throws Error{usage} where a batch has more iterations than the program allows in a sample, or not as many for all
/// where all wait for each other.
inline void check_iterations(const Program& program, const Order& order) {
  for (const auto& batch : order.batches) {
    if (in_step(program) && std::adjacent_find(batch.begin(), batch.end(), std::not_equal_to<>{}) != batch.end())
      throw Error{ErrorKind::usage, "a batch has different counts, and the program's actors wait for each other"};
    for (const u32 count : batch)
      if (program.most_iterations && count > program.most_iterations)
        throw Error{ErrorKind::usage, "a batch has " + std::to_string(count) + " iterations, the program at most " +
                                          std::to_string(program.most_iterations) + " a sample"};
  }
}

struct Stamp {
  double enter_s = 0, exit_s = 0;  // comparable within one device's (or the host's) clock only
};

struct Verdict {
  bool ok = true;
  u64 checked_bytes = 0, wrong_bytes = 0;
  std::string first_wrong;  // region and offset of the first wrong byte, in words
};

/// Bytes that crossed one directed link, from the model's own count or a hardware counter.
struct LinkBytes {
  std::string link;
  u64 bytes = 0;
};

struct Trace {
  u32 samples = 0, batches = 0, actors = 0;
  std::vector<Stamp> stamps;  // [sample][batch][actor]
  std::string timing;         // "gate", "events", "host", "kernel_clock" or "virtual"
  std::optional<Verdict> verdict;
  std::vector<LinkBytes> links;
  std::vector<std::pair<std::string, std::string>> notes;  // guard -> value, e.g. where the pages really were

  Stamp& at(u32 sample, u32 batch, u32 actor) { return stamps[(sample * batches + batch) * actors + actor]; }
  [[nodiscard]] const Stamp& at(u32 sample, u32 batch, u32 actor) const {
    return stamps[(sample * batches + batch) * actors + actor];
  }
};

struct Platform {
  virtual ~Platform() = default;
  [[nodiscard]] virtual Support supports(const Program&) const = 0;
  /// `key` names the measurement (point id and round): simulated noise is drawn from it, never from the order of calls.
  [[nodiscard]] virtual std::unique_ptr<Session> prepare(const Program&, const std::string& key) = 0;
  [[nodiscard]] virtual Trace run(Session&, const Order&) = 0;
};

}  // namespace linkscope
