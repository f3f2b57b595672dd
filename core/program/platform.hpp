// The interface that runs a Program: on this machine, or on a machine model in virtual time. Nothing else in the core is
// virtual.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "program/latencies.hpp"
#include "program/program.hpp"

namespace linkscope {

/// "Supported", or "not supported, because …".
struct Support {
  std::string why_not;
  explicit operator bool() const { return why_not.empty(); }
  static Support no(std::string reason) { return {std::move(reason)}; }
};

/// The reason why a GPU with `sms` SMs has no SM number `sm`.
[[nodiscard]] inline std::string why_no_sm(const Place& gpu, u32 sm, u32 sms) {
  return to_string(gpu) + " has no SM " + std::to_string(sm) + ": it has " + std::to_string(sms) +
         " SMs, numbered from 0";
}

/// The reason why the CPUs of a node cannot share a copy.
[[nodiscard]] inline std::string why_no_cpus(const Place& node, u32 threads, u64 cpus) {
  return std::to_string(threads) + " threads share the copy, and " + to_string(node) + " has " + std::to_string(cpus) +
         " CPUs";
}

/// The reason why a task cannot have a CPU of its own.
[[nodiscard]] inline std::string why_no_cpu(const Place& node, u32 cpu, u64 cpus) {
  return "a task needs CPU number " + std::to_string(cpu) + " of " + to_string(node) +
         " for itself, and the node has " + std::to_string(cpus) + " CPUs, numbered from 0";
}

/// Wall time spent since a program was prepared, by purpose. All zero on a model.
struct Spent {
  Seconds memory{0};      // allocate, place and fill memory
  Seconds rehearsals{0};  // run each step once, and probe whether queueing a batch blocks
  Seconds caches{0};      // flush caches before samples
  Seconds samples{0};     // queue, run and wait for timed work
  Seconds comparing{0};   // poison and compare destinations
};

/// Adds the duration of a scope to a sum.
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

/// A prepared program: its memory is allocated, placed, filled and checked, and every step has run once. The destructor
/// returns all resources to the platform.
struct Session {
  virtual ~Session() = default;
  Seconds expected_loop{0};  // duration of one iteration of all loops when every step ran once; 0: unknown
  bool acts = true;          // false: other processes run the program, with memory of this one; run() is not called
  Spent spent;
};

/// A sample that lasts for a duration: every actor begins iterations until a common end, and ends those that it has begun.
struct Duration {
  Seconds length{0};
  Seconds interval{0.01};  // of the rates within the sample
};
inline constexpr Seconds longest_duration{600};

/// The work of one run(): `samples` times, for each batch in turn, one sample with batch[a] iterations of actor a's loop.
/// A batch of zeros measures the cost of the stamps. Batches are interleaved so that drift affects all of them equally.
/// With `lasts` there are no batches: the numbers of iterations are results.
struct Order {
  u32 samples = 1;
  std::vector<std::vector<u32>> batches;
  bool verify = false;  // compare every written destination slice after the last sample, outside the timing
  std::optional<Duration> lasts{};
  // Stamp the end of each iteration of actors that exchange words (may_stamp()). Stamps cost time, so the stamps of such
  // samples are no measurement of a batch.
  bool stamped = false;
};

/// Whether the iterations of a program can be stamped one by one: its actors exchange words, and an iteration is one pass
/// through their loops.
[[nodiscard]] bool may_stamp(const Program&);

/// Throws Error{usage} if a batch exceeds the program's iterations per sample, if its counts differ although the actors
/// wait for each other, or if the program cannot run for the duration.
void check_order(const Program&, const Order&);

struct Stamp {
  double enter_s = 0, exit_s = 0;  // comparable only within the clock of one device or of the host
};

/// The number of iterations that an actor has ended by a time.
struct Mark {
  double at_s = 0;
  u64 iterations = 0;
};

/// One actor in a sample of a duration.
struct Series {
  std::vector<Mark> marks;  // from its start to its end, several in each interval if there are as many iterations
  std::vector<u64> interval_bytes;          // in each interval of the window
  std::vector<double> interval_iterations;  // likewise; those under way count by their part
  Latencies latencies;                      // of an actor whose iterations run singly
};

/// The time in which all actors ran: from the last start to the first end, in whole intervals.
struct Window {
  double start_s = 0, end_s = 0;
};

struct Verdict {
  bool ok = true;
  u64 checked_bytes = 0, wrong_bytes = 0;
  std::string first_wrong;  // region and offset of the first wrong byte, as text
};

/// Bytes that crossed one directed link, counted by the model or by a hardware counter.
struct LinkBytes {
  std::string link;
  u64 bytes = 0;
};

struct Trace {
  u32 samples = 0, batches = 0, actors = 0;
  std::vector<Stamp> stamps;    // [sample][batch][actor]; of samples of a duration, all by one clock
  std::vector<Series> series;   // [sample][actor] of samples of a duration
  std::vector<Window> windows;  // [sample]
  // [actor] of stamped samples: the times between the ends of iterations, without the first iteration of a sample. Empty for
  // actors of another process, and for further blocks of a kernel.
  std::vector<Latencies> latencies;
  std::string timing;  // "gate", "events", "host", "kernel_clock" or "virtual"
  std::optional<Verdict> verdict;
  std::vector<LinkBytes> links;
  std::vector<std::pair<std::string, std::string>> notes;  // guard -> value, e.g. the NUMA node of the pages

  /// Room for the samples of an order.
  void make_room(const Order&, std::size_t actors);
  Stamp& at(u32 sample, u32 batch, u32 actor) { return stamps[(sample * batches + batch) * actors + actor]; }
  [[nodiscard]] const Stamp& at(u32 sample, u32 batch, u32 actor) const {
    return stamps[(sample * batches + batch) * actors + actor];
  }
};

struct Platform {
  virtual ~Platform() = default;
  [[nodiscard]] virtual Support supports(const Program&) const = 0;
  /// `key` names the measurement (point id and round). Simulated noise depends on the key, never on the order of calls.
  [[nodiscard]] virtual std::unique_ptr<Session> prepare(const Program&, const std::string& key) = 0;
  [[nodiscard]] virtual Trace run(Session&, const Order&) = 0;
};

}  // namespace linkscope
