#include "platform/sim/words.hpp"

#include <algorithm>
#include <cmath>

namespace linkscope::sim {

Words::Words(const Lanes& lanes) {
  for (const auto& lane : lanes.lanes)
    for (const auto* ops : {&lane.once, &lane.loop})
      for (const auto& op : *ops)
        for (u64 slice = 0; op.flag && slice < op.flag->op.to.slices; ++slice) {
          const u64 first = op.flag->op.to.at(slice);
          words_[first];
          for (u64 at = first; op.flag->waits() && at < first + op.flag->op.bytes; at += sizeof(u64)) words_[at];
        }
}

void Words::start_afresh() {
  for (auto& [address, word] : words_) {
    word.values.clear();
    word.waiting.clear();
  }
}

double Words::seen(const Waiting& who, const Value& value) {
  const double poll = who.flag->poll * who.pace;
  if (poll == 0) return std::max(value.at, who.since);
  const double looks = std::max(0.0, std::ceil((value.at - who.since) / poll - 0.5));
  // The words of a message are read while others are under way.
  return std::max(who.since + (looks + 1) * poll, std::max(who.since, value.first) + who.flag->read * who.pace);
}

std::vector<Words::Waiting> Words::set(u64 address, const Value& value) {
  auto& word = words_.at(address);
  word.values.push_back(value);
  std::vector<Waiting> found;
  std::erase_if(word.waiting, [&](const Waiting& who) {
    if (!has_come(value.value, who.value)) return false;
    found.push_back(who);
    return true;
  });
  return found;
}

u64 Words::latest(u64 word) const {
  const auto& values = words_.at(word).values;
  return values.empty() ? 0 : values.back().value;
}

std::optional<double> Words::wait(Waiting who) {
  for (; who.next < who.end; who.next += sizeof(u64)) {
    auto& word = words_.at(who.next);
    std::optional<Value> there;  // values grow: the first value that is large enough
    for (auto value = word.values.rbegin(); value != word.values.rend() && has_come(value->value, who.value); ++value)
      there = *value;
    if (has_come(0, who.value)) there = Value{};
    if (!there) {
      word.waiting.push_back(who);
      return {};
    }
    who.seen = std::max(who.seen, seen(who, *there));
  }
  return who.seen;
}

const Words::Waiting* Words::stuck() const {
  for (const auto& [address, word] : words_)
    if (!word.waiting.empty()) return &word.waiting.front();
  return nullptr;
}

}  // namespace linkscope::sim
