// The batches of actors in a sample of a duration: when they begin, and their iterations.
#pragma once
#include <algorithm>
#include <mutex>
#include <vector>

#include "platform/cuda/session.hpp"

namespace linkscope {

inline constexpr u32 most_in_batch = 1024;  // about as many launches as a stream queues

/// Decides which batches are begun, and how many iterations each has. Actors that exchange words begin the same batches:
/// where one of them has begun a batch before the end, the others begin it too.
class Turns {
 public:
  /// `exchanging`: the number of actors that exchange words. `once_s`: seconds of an iteration of all actors; 0: unknown.
  /// `end_s`: no batch begins later. `part_s`: seconds of a batch.
  Turns(std::size_t exchanging, double once_s, double end_s, double part_s)
      : end_s_{end_s}, part_s_{part_s}, exchanging_{exchanging} {
    if (once_s > 0) first_ = static_cast<u32>(std::clamp(part_s / once_s, 1.0, double{most_in_batch}));
  }

  [[nodiscard]] bool begins(const Actor& actor, u64 batch) {
    const bool early = host_now() < end_s_;
    if (!exchanges_words(actor)) return early;
    const std::lock_guard lock{guard_};
    if (early) common_ = std::max(common_, batch + 1);
    return batch < common_;
  }

  /// The iterations of a batch of those that exchange words. Other actors may take far longer than they do, so the count
  /// grows while batches are short.
  [[nodiscard]] u32 count(u64 batch) {
    const std::lock_guard lock{guard_};
    while (batches_.size() <= batch) batches_.push_back({next_count()});
    return batches_[batch].count;
  }
  /// An actor that exchanges words has ended a batch.
  void took(u64 batch, double seconds) {
    const std::lock_guard lock{guard_};
    auto& of = batches_[batch];
    of.longest_s = std::max(of.longest_s, seconds);
    if (++of.ended == exchanging_) latest_ = of;
  }

  [[nodiscard]] double end() const { return end_s_; }

 private:
  struct Batch {
    u32 count = 1;
    std::size_t ended = 0;  // by so many actors
    double longest_s = 0;
  };

  [[nodiscard]] u32 next_count() const {
    const u32 count = batches_.empty() ? first_ : batches_.back().count;
    // Only the effect of the latest count shows whether it may grow.
    const bool is_short = latest_.count == count && latest_.ended > 0 && latest_.longest_s < part_s_ / 2;
    return is_short ? std::min(2 * count, most_in_batch) : count;
  }

  double end_s_, part_s_;
  std::size_t exchanging_;
  u32 first_ = 1;
  std::mutex guard_;
  u64 common_ = 0;  // batches begun by any actor that exchanges words
  std::vector<Batch> batches_;
  Batch latest_;  // that all have ended
};

/// The iterations of an actor's next batch: a part of an interval. Actors that exchange words have one count.
class BatchSize {
 public:
  BatchSize(const Actor& actor, double part_s, Turns& turns)
      : turns_{turns},
        part_s_{part_s},
        together_{exchanges_words(actor)},
        grows_{!together_ && actor.tenths == all_tenths} {}

  [[nodiscard]] u32 next() { return together_ ? turns_.count(begun_++) : count_; }
  /// The oldest batch that had not ended took that long.
  void took(double seconds) {
    if (together_) turns_.took(ended_++, seconds);
    else if (grows_ && seconds < part_s_ / 2) count_ = std::min(2 * count_, most_in_batch);
  }

 private:
  Turns& turns_;
  double part_s_;
  bool together_, grows_;
  u32 count_ = 1;
  u64 begun_ = 0, ended_ = 0;  // batches
};

}  // namespace linkscope
