// The event loop: lanes take their copies through engines, threads, rings and links, event by event, in virtual time.
// One sample at a time; nothing is allocated during a sample.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "platform/sim/lanes.hpp"
#include "platform/sim/managed.hpp"
#include "platform/sim/memory.hpp"
#include "platform/sim/words.hpp"
#include "program/series.hpp"

namespace linkscope::sim {

/// The noise of a lane in one sample: factors of costs (times) and rates (speeds). `slow` multiplies all times.
struct Factors {
  double compute = 1, engine = 1, channel = 1, rate = 1, host = 1, slow = 1;
};

class Simulation {
 public:
  /// All arguments outlive it.
  Simulation(const Machine&, const Servers&, std::vector<double> capacities, const Lanes&, sim::Memory&);

  /// One sample: `once`, the gate, then iterations[lane] times each loop. Stamps include the phase of the clock's tick.
  /// Throws Error{timeout} for a wait in vain.
  /// `latencies`: of each lane, if its iterations are stamped; null: they are not.
  void sample(std::span<const u32> iterations, std::span<const Factors>, double tick_phase, Stamp* stamps,
              Latencies* latencies = nullptr);
  /// One sample of a duration: `once`, then each loop until the common end, without a gate.
  void sample(const Duration&, std::span<const Factors>, Stamp* stamps, Series* series);
  /// Applies to the samples from now.
  void set_capacity(u32 resource, double capacity) { fluid_.set_capacity(resource, capacity); }
  /// Bytes that each stage carried since the last call.
  [[nodiscard]] std::vector<u64> take_carried();

 private:
  enum class Step : u8 { idle, issue, slot, server, setup, word, flow };  // the reason why a stage of a lane waits
  enum class Channel : u8 { none, compute, engine };                      // on which a stream's last step was
  struct Runner {
    Step step = Step::idle;
    u64 done = 0;   // chunks of the current op
    u64 bytes = 0;  // of the chunk that it works on
    double flows_from = 0;
  };
  struct Running {
    const std::vector<Op>* ops = nullptr;
    u32 op = 0, iteration = 0, iterations = 0;
    u64 chunks = 0;
    double queued = 0;  // s that the host took to queue everything before the current op
    Channel channel = Channel::none;
    double start = 0, end = 0;
    double busy = 0;        // end of the work that it left
    double works_from = 0;  // the end of its latest rest
    Factors factors;
    Runner runners[2];
    std::optional<Marks> marks;      // in a sample of a duration,
    Latencies* latencies = nullptr;  // and those of a lane whose iterations run singly or are stamped,
    std::optional<double> begun;     // the last of which began at this time; none: it does not count
  };
  struct Timer {
    double at = 0;
    u32 runner = 0;
  };
  struct Server {
    u32 free = 0;
    bool moves = false;        // an engine during set-up or transfer of bytes outside a command
    std::vector<u32> waiting;  // runners, first come first served
  };
  /// A GPU that several processes use (contexts.cpp).
  struct Shared {
    u32 gpu = 0;
    u32 active = nobody;         // the process whose context runs
    bool changing = false;       // to `active`
    double until = 0;            // its slice,
    bool fresh = false;          // true until work begins in it; a slice of any length does at least one piece of work
    u32 working = 0;             // runners with work in progress
    std::vector<u32> waiting{};  // runners of all processes, first come first served
  };

  const Machine& machine_;
  const std::vector<Lane>& lanes_;
  const u32 passes_;  // of an iteration
  sim::Memory& memory_;
  Fluid fluid_;
  std::vector<Server> servers_;
  std::vector<Shared> shared_;  // usually none
  std::vector<Running> running_;
  std::vector<Timer> timers_;  // sorted, the next last; of equal ones the one set first
  std::vector<u64> carried_;
  Pages pages_;
  Words words_;
  double now_ = 0;
  std::optional<double> until_;  // the common end of a sample of a duration
  std::vector<u32> common_;      // by pair: the last iteration that a lane with words has begun; the others follow

  // A runner is one stage of one lane; indices beyond these are context switches.
  [[nodiscard]] static u32 lane_of(u32 runner) { return runner / 2; }
  [[nodiscard]] static u32 stage_of(u32 runner) { return runner % 2; }

  void start_afresh(std::span<const Factors>);
  /// Whether a lane is launched by itself, and not with the kernel of another one.
  [[nodiscard]] bool leads(u32 lane) const { return lanes_[lane].leader == lane; }
  void stamp_grids(Stamp* stamps) const;
  [[nodiscard]] bool goes_on(u32 lane);
  void run_to_end();
  void begin(u32 lane, const std::vector<Op>& ops, u32 iterations, double after = 0);
  void begin_op(u32 lane);
  void feed(u32 lane, u32 stage);
  [[nodiscard]] double next_queued(u32 lane) const;
  void proceed(u32 runner);
  void start_setup(u32 runner);
  void start_flow(u32 runner);
  /// The memory of a lane's ops (base/actor_ops.hpp) in virtual time. A wait ends by itself: look().
  struct Memory {
    Simulation& simulation;
    u32 runner;
    void set(u64 word, u64 value);
    void add(u64 word, u64 value) { set(word, simulation.words_.latest(word) + value); }
    [[nodiscard]] bool wait(u64 first, u64 count, u64 value, u64 timeout_ns);
    void fence() {}  // its time has passed, and the model reorders nothing
  };
  void perform_flag(u32 runner);
  [[nodiscard]] bool look(const Words::Waiting&);
  void chunk_done(u32 runner);
  void go_on(u32 lane, u32 stage);
  void op_done(u32 lane);
  [[nodiscard]] bool next_of_part(Running&, u32 first_ops) const;
  [[nodiscard]] bool take(u32 server, u32 runner);
  void release(u32 server, u32 first = nobody);
  [[nodiscard]] Shared* shared(const Stage&);
  [[nodiscard]] const Stage& stage_of_op(u32 runner) const;
  void schedule(Shared&);
  void begin_slice(Shared&);
  void leave(Shared&, const Stage&);
  void wake(u32 runner, double at);
  [[nodiscard]] bool goes_inline(const Stage& stage, u64 bytes) const {
    return stage.in_command.bytes > 0 && bytes <= stage.in_command.bytes;
  }
  [[nodiscard]] double fresh_setup(const Running&, const Op&, const Stage&) const;
  [[nodiscard]] double setup_time(Running&, const Op&, u32 stage, u64 bytes) const;
  [[nodiscard]] double beside_opposite(const Stage&) const;
  [[nodiscard]] double to_channel(Running&, Channel) const;
};

}  // namespace linkscope::sim
