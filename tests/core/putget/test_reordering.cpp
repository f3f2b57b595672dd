// Random traffic in a memory that delays and reorders all that the rings do not order: as far as a GPU and its links may.
// Actors take turns in one thread, so a seed repeats a run. The model checker explores all runs of small rings; this one has
// many messages of random sizes between random pairs.
#include <array>
#include <deque>
#include <random>
#include <unordered_map>
#include <vector>

#include "doctest.h"
#include "traffic.hpp"

using namespace linkscope;

namespace {

/// What an actor has stored waits in its buffer. Stores between two fences leave it in any order, but for those to one
/// location. A load returns any value that the actor has not seen overwritten.
class Reordering {
 public:
  Reordering(u32 actors, u64 seed) : actors_(actors), random_{seed} {}

  class Side {
   public:
    Side(Reordering& all, u32 self, bool fences) : all_{all}, self_{self}, fences_{fences} {}
    Pair load_pair(RingWord at) { return all_.load(self_, at); }
    void store_pair(RingWord at, const Pair& value) { all_.store(self_, at, value); }
    RingWord acquire(RingWord at) {
      const RingWord value = all_.load(self_, at).first;
      all_.see_all(self_);
      return value;
    }
    void release(RingWord at, RingWord value) {
      all_.begin_epoch(self_);
      all_.store(self_, at, {value, 0});
    }
    void fence() {
      if (!fences_) return;
      all_.begin_epoch(self_);
      all_.see_all(self_);
    }

   private:
    Reordering& all_;
    u32 self_;
    bool fences_;
  };
  Side side(u32 self, bool fences = true) { return {*this, self, fences}; }

  /// Lets some stores of all actors arrive.
  void drain() {
    for (auto& actor : actors_)
      while (!actor.stores.empty() && random_() % 4 != 0) arrive(actor);
  }

 private:
  struct Store {
    RingWord at;
    Pair value;
    u64 epoch;
  };
  struct Version {
    Pair value;
    u64 since;
  };
  struct Actor {
    std::deque<Store> stores;
    u64 epoch = 0, sees = 0;                 // sees: the time up to which it knows of all stores
    std::unordered_map<RingWord, u64> seen;  // the time of the newest value of a location that it has loaded
  };

  void begin_epoch(u32 self) { ++actors_[self].epoch; }
  void see_all(u32 self) { actors_[self].sees = now_; }
  void store(u32 self, RingWord at, const Pair& value) {
    actors_[self].stores.push_back({at, value, actors_[self].epoch});
  }
  /// One of the stores of the oldest epoch, the first to its location.
  void arrive(Actor& actor) {
    u64 same = 0;
    while (same < actor.stores.size() && actor.stores[same].epoch == actor.stores.front().epoch) ++same;
    u64 chosen = random_() % same;
    for (u64 i = 0; i < chosen; ++i)
      if (actor.stores[i].at == actor.stores[chosen].at) chosen = i;
    const auto& [at, value, epoch] = actor.stores[chosen];
    auto& versions = memory_[at];
    if (versions.empty()) versions.push_back({{}, 0});
    versions.push_back({value, ++now_});
    if (versions.size() > kept) versions.pop_front();
    actor.stores.erase(actor.stores.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  Pair load(u32 self, RingWord at) {
    auto& actor = actors_[self];
    for (auto own = actor.stores.rbegin(); own != actor.stores.rend(); ++own)
      if (own->at == at) return own->value;
    const auto& versions = memory_[at];
    if (versions.empty()) return {};
    const u64 known = std::max(actor.sees, actor.seen[at]);
    u64 oldest = versions.size() - 1;
    while (oldest > 0 && versions[oldest].since > known) --oldest;
    const auto& [value, since] = versions[oldest + random_() % (versions.size() - oldest)];
    actor.seen[at] = std::max(actor.seen[at], since);
    return value;
  }

  static constexpr std::size_t kept = 4;
  std::vector<Actor> actors_;
  std::unordered_map<RingWord, std::deque<Version>> memory_;
  std::mt19937_64 random_;
  u64 now_ = 0;
};

constexpr u32 actors = 4;
constexpr u64 most_turns_each = 1000;  // of a message, on average: above it, somebody waits for ever

/// Sends and receives `each` messages of all ordered pairs. "" or what is wrong.
std::string exchange_messages(u64 each, u64 seed) {
  const Traffic traffic{0, actors, each};
  Reordering memory{actors, seed};
  std::mt19937_64 random{seed + 1};
  std::array<std::array<MessageSender, actors>, actors> senders{};
  std::array<std::array<MessageReceiver, actors>, actors> receivers{};
  for (u32 from = 0; from < actors; ++from)
    for (u32 to = 0; to < actors; ++to) {
      senders.at(from).at(to).ring = traffic.ring(from, to);
      receivers.at(from).at(to).ring = traffic.ring(from, to);
    }
  const u64 all = u64{actors} * (actors - 1) * each;
  for (u64 turn = 0, left = all; left > 0; ++turn) {
    if (turn > most_turns_each * all) return "an actor waits for ever";
    const auto from = static_cast<u32>(random() % actors), to = static_cast<u32>(random() % actors);
    if (from == to) continue;
    memory.drain();
    auto& sender = senders.at(from).at(to);
    auto& receiver = receivers.at(from).at(to);
    if (random() % 2 != 0 && sender.sent < each) {
      const u64 of = Traffic::key(from, to, sender.sent);
      auto side = memory.side(from);
      (void)sender.try_send(side, OneThread{}, Traffic::bytes_of(of),
                            [&](unsigned i) { return Traffic::mixed(of + i); });
      continue;
    }
    auto side = memory.side(to);
    const u64 number = receiver.received, of = Traffic::key(from, to, number);
    std::array<u64, Traffic::words> found{};
    if (!receiver.try_receive(side, OneThread{}, [&](unsigned i, u64 word) { found.at(i) = word; })) continue;
    if (number == each) return "a message came twice";
    if (receiver.bytes != Traffic::bytes_of(of)) return "message " + std::to_string(number) + " has a wrong length";
    for (unsigned i = 0; i < message_words(receiver.bytes); ++i)
      if (found.at(i) != Traffic::mixed(of + i)) return "message " + std::to_string(number) + " has wrong words";
    --left;
  }
  return "";
}

/// Puts through a ring of descriptors: the poster writes data and a descriptor, the server reads what it names.
std::string exchange_puts(u64 count, u64 seed, bool poster_fences = true, bool server_fences = true) {
  constexpr u32 slots = 3, words = 2;
  constexpr RingWord credits = 0, first_slot = 128, data = first_slot + slots * words * pair_bytes;
  const Ring ring{first_slot, credits, slots, words};
  Reordering memory{2, seed};
  auto posting = memory.side(0, poster_fences), serving = memory.side(1, server_fences);
  DescriptorPoster poster{ring};
  DescriptorServer server{ring};
  std::mt19937_64 random{seed + 1};
  const auto place = [](RingWord number) { return data + number % slots * pair_bytes; };
  for (u64 turn = 0; server.taken < count; ++turn) {
    if (turn > most_turns_each * count) return "an actor waits for ever";
    memory.drain();
    if (random() % 2 != 0) {
      if (poster.posted == count) continue;
      poster.look(posting);
      if (poster.posted - poster.completed >= slots) continue;
      posting.store_pair(place(poster.posted), {Traffic::mixed(poster.posted), 0});
      const Operation put{Verb::put, place(poster.posted), poster.posted, 8, 0};
      if (!poster.try_post(posting, &put, 1)) return "a ring with room refuses a descriptor";
      continue;
    }
    std::array<Operation, most_descriptor_words> found{};
    const u64 number = server.taken;
    if (!server.try_take(serving, found.data())) continue;
    if (found[0].verb != Verb::put || found[0].remote != number)
      return "descriptor " + std::to_string(number) + " is another";
    if (serving.load_pair(found[0].local).first != Traffic::mixed(number))
      return "put " + std::to_string(number) + " has the data of another";
    server.complete(serving);
  }
  return "";
}

}  // namespace

TEST_CASE("messages arrive once, whole and in order in a memory that reorders all that nothing orders") {
  CHECK(exchange_messages(messages_in_all() / (actors * (actors - 1)), 1) == "");
}

TEST_CASE("puts through descriptors carry their data in a memory that reorders all that nothing orders") {
  CHECK(exchange_puts(messages_in_all(), 2) == "");
}

TEST_CASE("the memory that reorders shows each fence that is missing") {
  CHECK(exchange_puts(10'000, 3, false, true) != "");
  CHECK(exchange_puts(10'000, 3, true, false) != "");
}
