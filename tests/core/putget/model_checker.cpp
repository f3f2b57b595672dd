#include "model_checker.hpp"

#include <algorithm>

namespace linkscope::model {
namespace {

void join(View& into, const View& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void append(std::string& text, const View& view) { text.append(view.begin(), view.end()); }
void append(std::string& text, const Pair& pair) { text.append(reinterpret_cast<const char*>(&pair), sizeof pair); }

}  // namespace

/// Runs a program up to its next access, and returns that; none if it has ended. Failed attempts leave no results.
std::optional<Access> Explorer::settle(State& state, unsigned actor) const {
  for (;;) {
    Replay replay{state.actors[actor]};
    try {
      actors_[actor](replay);
      return {};
    } catch (const Stop&) {
      if (!replay.failed()) return replay.pending();
    }
  }
}

/// The states after an access: one for each value that a load may return.
std::vector<Explorer::State> Explorer::after(const State& before, unsigned actor, const Access& access) const {
  using Kind = Access::Kind;
  std::vector<State> states;
  const auto add = [&](auto change) {
    states.push_back(before);
    change(states.back(), states.back().actors[actor]);
  };
  const bool orders = access.kind == Kind::release || access.kind == Kind::fence;
  if (orders && !before.actors[actor].delayed.empty()) return {};  // these come first
  const auto at = access.location;
  if (access.kind == Kind::fence) {
    add([](State&, ActorState& self) {
      join(self.seen, self.by_fence);
      self.released = self.seen;
      self.results.push_back({});
    });
  } else if (access.kind == Kind::delayed_read) {
    add([&](State&, ActorState& self) {
      self.delayed.push_back(access);
      self.results.push_back({});
    });
  } else if (access.kind == Kind::store || access.kind == Kind::release) {
    add([&](State& state, ActorState& self) {
      self.seen[at] = static_cast<unsigned char>(state.memory[at].size());
      View carries = access.kind == Kind::release ? self.seen : self.released;
      carries[at] = self.seen[at];
      state.memory[at].push_back({access.value, carries});
      self.results.push_back({});
    });
  } else {
    for (std::size_t i = before.actors[actor].seen[at]; i < before.memory[at].size(); ++i)
      add([&](State& state, ActorState& self) {
        const auto& [value, carries] = state.memory[at][i];
        self.seen[at] = static_cast<unsigned char>(i);
        join(self.by_fence, carries);
        if (access.kind == Kind::acquire) join(self.seen, carries);
        self.results.push_back(value);
      });
  }
  return states;
}

std::vector<Explorer::State> Explorer::after_delayed(const State& before, unsigned actor) {
  std::vector<State> states;
  const auto& self = before.actors[actor];
  for (std::size_t read = 0; read < self.delayed.size(); ++read) {
    const auto& [kind, at, expected] = self.delayed[read];
    for (std::size_t i = self.seen[at]; i < before.memory[at].size(); ++i) {
      if (before.memory[at][i].value.first != expected.first)
        throw Violation{"a read of data returned what another message has there"};
      states.push_back(before);
      auto& now = states.back().actors[actor];
      now.seen[at] = static_cast<unsigned char>(i);
      now.delayed.erase(now.delayed.begin() + static_cast<std::ptrdiff_t>(read));
    }
  }
  return states;
}

std::string Explorer::text_of(const State& state) {
  std::string text;
  for (const auto& stores : state.memory) {
    text += static_cast<char>(stores.size());
    for (const auto& store : stores) {
      append(text, store.value);
      append(text, store.carries);
    }
  }
  for (const auto& actor : state.actors) {
    text += static_cast<char>(actor.results.size());
    for (const auto& result : actor.results) append(text, result);
    for (const auto* view : {&actor.seen, &actor.by_fence, &actor.released}) append(text, *view);
    text += static_cast<char>(actor.delayed.size());
    for (const auto& read : actor.delayed) {
      text += static_cast<char>(read.location);
      append(text, read.value);
    }
  }
  return text;
}

std::size_t Explorer::number_of(State state) {
  for (unsigned actor = 0; actor < actors_.size(); ++actor) (void)settle(state, actor);
  const auto [found, is_new] = numbers_.try_emplace(text_of(state), nodes_.size());
  if (is_new) {
    nodes_.emplace_back();
    open_.emplace_back(found->second, std::move(state));
  }
  return found->second;
}

/// Whether the ends of the programs can be reached from every state.
bool Explorer::all_can_end() const {
  std::vector<std::vector<std::size_t>> before(nodes_.size());
  std::vector<std::size_t> open;
  std::vector<bool> ends(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const auto next : nodes_[i].next) before[next].push_back(i);
    if (nodes_[i].ended) open.push_back(i);
  }
  while (!open.empty()) {
    const auto i = open.back();
    open.pop_back();
    if (ends[i]) continue;
    ends[i] = true;
    open.insert(open.end(), before[i].begin(), before[i].end());
  }
  return std::ranges::all_of(ends, [](bool one) { return one; });
}

Outcome Explorer::run() {
  const View none(locations_, 0);
  State start{std::vector<std::vector<Store>>(locations_, {{{}, none}}),
              std::vector<ActorState>(actors_.size(), {{}, none, none, none, {}})};
  try {
    number_of(std::move(start));
    while (!open_.empty()) {
      auto [number, state] = std::move(open_.back());
      open_.pop_back();
      bool ended = true;
      for (unsigned actor = 0; actor < actors_.size(); ++actor) {
        auto next = after_delayed(state, actor);
        if (const auto access = settle(state, actor)) {
          ended = false;
          for (auto& one : after(state, actor, *access)) next.push_back(std::move(one));
        }
        for (auto& one : next) {
          const auto to = number_of(std::move(one));
          nodes_[number].next.push_back(to);
        }
        ended = ended && state.actors[actor].delayed.empty();
      }
      nodes_[number].ended = ended;
    }
  } catch (const Violation& found) {
    return {found.what(), nodes_.size()};
  }
  return {all_can_end() ? "" : "an actor waits for ever", nodes_.size()};
}

}  // namespace linkscope::model
