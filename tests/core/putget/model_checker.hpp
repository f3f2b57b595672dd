// Explores every run of actors that share memory, up to the end of their programs. Memory is weak: a load without
// order returns any value that this actor has not seen overwritten, so stores and loads may be seen out of order unless a
// release, an acquire or a fence forbids it. A delayed read may take effect at any later time until a release or a fence.
// Each location is written by one actor.
#pragma once
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ring.hpp"

namespace linkscope::model {

/// How many stores to each location an actor has seen.
using View = std::vector<unsigned char>;

struct Access {
  enum class Kind { load, acquire, store, release, fence, delayed_read } kind;
  unsigned location = 0;
  Pair value{};  // stored, or expected by a delayed read
};

struct Stop {};  // unwinds a program at an access that was not made yet
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a program does between accesses follows from what its loads returned, so these are its state.
struct ActorState {
  std::vector<Pair> results;
  View seen, by_fence, released;  // by_fence: what a fence adds to `seen`; released: what later stores carry
  std::vector<Access> delayed;
};

/// The memory of one program, which runs again from its start for each access.
class Replay {
 public:
  explicit Replay(ActorState& state) : state_{state} {}

  Pair load_pair(RingWord at) { return next({Access::Kind::load, location(at)}); }
  void store_pair(RingWord at, const Pair& value) { next({Access::Kind::store, location(at), value}); }
  RingWord acquire(RingWord at) { return next({Access::Kind::acquire, location(at)}).first; }
  void release(RingWord at, RingWord value) { next({Access::Kind::release, location(at), {value, 0}}); }
  void fence() { next({Access::Kind::fence}); }
  /// A load without order whose value nothing depends on: it must be `expected`.
  void read_later(RingWord at, RingWord expected) { next({Access::Kind::delayed_read, location(at), {expected, 0}}); }

  /// Repeats until it is true. A failed attempt leaves nothing but what the actor has seen.
  template <class Attempt>
  void until(Attempt attempt) {
    const auto start = made_;
    if (attempt()) return;
    state_.results.resize(start);
    failed_ = true;
    throw Stop{};
  }
  static void check(bool holds, const char* what) {
    if (!holds) throw Violation{what};
  }

  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] const std::optional<Access>& pending() const { return pending_; }

 private:
  static unsigned location(RingWord at) { return static_cast<unsigned>(at / pair_bytes); }
  Pair next(const Access& access) {
    if (made_ < state_.results.size()) return state_.results[made_++];
    pending_ = access;
    throw Stop{};
  }
  ActorState& state_;
  std::size_t made_ = 0;
  bool failed_ = false;
  std::optional<Access> pending_;
};

using Actor = std::function<void(Replay&)>;

struct Outcome {
  std::string wrong;  // "" if every run ends well
  std::size_t states = 0;
};

class Explorer {
 public:
  /// Locations are the addresses below 16 * `locations`, zero at first.
  Explorer(std::vector<Actor> actors, unsigned locations) : actors_{std::move(actors)}, locations_{locations} {}
  Outcome run();

 private:
  struct Store {
    Pair value;
    View carries;
  };
  struct State {
    std::vector<std::vector<Store>> memory;
    std::vector<ActorState> actors;
  };
  struct Node {
    std::vector<std::size_t> next;
    bool ended = false;
  };

  [[nodiscard]] std::optional<Access> settle(State&, unsigned actor) const;
  [[nodiscard]] std::vector<State> after(const State&, unsigned actor, const Access&) const;
  [[nodiscard]] static std::vector<State> after_delayed(const State&, unsigned actor);
  [[nodiscard]] static std::string text_of(const State&);
  std::size_t number_of(State);
  [[nodiscard]] bool all_can_end() const;

  std::vector<Actor> actors_;
  unsigned locations_;
  std::unordered_map<std::string, std::size_t> numbers_;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::size_t, State>> open_;
};

}  // namespace linkscope::model
