#include "platform/sim/words.hpp"

#include <algorithm>
#include <cmath>

namespace linkscope::sim {

void Words::start_afresh() {
  for (auto& word : words_) {
    word.values.clear();
    word.waiting.clear();
  }
}

double Words::seen(const Waiting& who, double at) {
  const double poll = who.flag->poll * who.pace;
  if (poll == 0) return std::max(at, who.since);
  const double looks = std::max(0.0, std::ceil((at - who.since) / poll - 0.5));
  return who.since + (looks + 1) * poll;
}

std::vector<Words::Waiting> Words::set(u32 index, u64 value, double at) {
  auto& word = words_[index];
  word.values.push_back({value, at});
  std::vector<Waiting> found;
  std::erase_if(word.waiting, [&](const Waiting& who) {
    if (who.value > value) return false;
    found.push_back(who);
    return true;
  });
  return found;
}

std::optional<double> Words::wait(const Waiting& who) {
  auto& word = words_[who.flag->word];
  std::optional<double> there;  // values grow: the first value that is large enough
  for (auto value = word.values.rbegin(); value != word.values.rend() && value->value >= who.value; ++value)
    there = value->at;
  if (there) return seen(who, *there);
  word.waiting.push_back(who);
  return {};
}

const Words::Waiting* Words::stuck() const {
  for (const auto& word : words_)
    if (!word.waiting.empty()) return &word.waiting.front();
  return nullptr;
}

}  // namespace linkscope::sim
