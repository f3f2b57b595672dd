// Which contexts are kept, of those that GPUs are given in turn.
#include <doctest.h>

#include "platform/cuda/contexts.hpp"

namespace linkscope {
namespace {

constexpr double cheap = 1.5e-6, dear = 1.64e-6;

/// A GPU whose contexts cost so much one after the other, the last of these again and again.
ContextMaker gpu_of(std::vector<double> costs, const std::string& model = "H200") {
  auto next = std::make_shared<std::size_t>(0);
  return {model, [costs = std::move(costs), next] { return Seconds{costs[std::min((*next)++, costs.size() - 1)]}; }};
}

std::vector<double> seconds(const std::vector<Seconds>& costs) {
  std::vector<double> numbers;
  for (const Seconds cost : costs) numbers.push_back(cost.count());
  return numbers;
}

TEST_CASE("where a model is known the first context that is as cheap is kept") {
  const auto made = make_contexts_alike({gpu_of({dear, dear, cheap, dear}), gpu_of({1.02 * cheap, dear})}, {{"H200", Seconds{cheap}}});
  CHECK(seconds(made[0]) == std::vector{dear, dear, cheap});
  CHECK(seconds(made[1]) == std::vector{1.02 * cheap});
}

TEST_CASE("of a model of which nothing is known eight are made, by all its GPUs together") {
  const auto four = make_contexts_alike({gpu_of({cheap}), gpu_of({cheap}), gpu_of({cheap}), gpu_of({cheap})}, {});
  for (const auto& of : four) CHECK(of.size() == 2);
  CHECK(make_contexts_alike({gpu_of({cheap})}, {}).front().size() == 8);
}

TEST_CASE("a cheap context of one GPU tells that those of its model are dear, of another model nothing") {
  const auto made = make_contexts_alike({gpu_of({dear, dear, dear, dear, dear, cheap}), gpu_of({cheap}), gpu_of({3 * dear}, "A100")}, {{"A100", Seconds{3 * dear}}});
  CHECK(made[0].back().count() == cheap);
  CHECK(made[1].back().count() == cheap);
  CHECK(made[2].size() == 1);
}

TEST_CASE("a last context that is dear is made again where the cheap ones came before it") {
  const auto made = make_contexts_alike({gpu_of({cheap, dear, dear, dear, dear, dear, dear, dear, dear, cheap})}, {});
  CHECK(made[0].size() == 10);
  CHECK(made[0].back().count() == cheap);
}

TEST_CASE("a GPU that has slowed down has no context as cheap as the floor: eight are made, then it is taken as it is") {
  const auto made = make_contexts_alike({gpu_of({2 * dear})}, {{"H200", Seconds{cheap}}});
  CHECK(made[0].size() == 8);
}

TEST_CASE("sixteen are made at most, whatever they cost") {
  std::vector<double> falling;
  for (int i = 0; i < 100; ++i) falling.push_back(i % 2 ? dear * (100 - i) : cheap / (100 + i));
  falling.push_back(dear);
  CHECK(make_contexts_alike({gpu_of({cheap, dear})}, {{"H200", Seconds{cheap / 2}}}).front().size() == 16);
  CHECK(make_contexts_alike({gpu_of(falling)}, {{"H200", Seconds{cheap / 1000}}}).front().size() <= 16);
}

TEST_CASE("without GPUs nothing is made") { CHECK(make_contexts_alike({}, {}).empty()); }

}  // namespace
}  // namespace linkscope
