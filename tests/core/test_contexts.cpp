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
  const auto made = make_contexts_alike({gpu_of({dear, dear, cheap, dear}), gpu_of({1.02 * cheap, dear})},
                                        {{"H200", Seconds{cheap}}});
  CHECK(seconds(made[0]) == std::vector{dear, dear, cheap});
  CHECK(seconds(made[1]) == std::vector{1.02 * cheap});
}

TEST_CASE("of a model of which nothing is known eight are made, by all its GPUs together") {
  const auto four = make_contexts_alike({gpu_of({cheap}), gpu_of({cheap}), gpu_of({cheap}), gpu_of({cheap})}, {});
  for (const auto& of : four) CHECK(of.size() == 2);
  CHECK(make_contexts_alike({gpu_of({cheap})}, {}).front().size() == 8);
}

TEST_CASE("a cheap context of one GPU tells that those of its model are dear, of another model nothing") {
  const auto made =
      make_contexts_alike({gpu_of({dear, dear, dear, dear, dear, cheap}), gpu_of({cheap}), gpu_of({3 * dear}, "A100")},
                          {{"A100", Seconds{3 * dear}}});
  CHECK(made[0].back().count() == cheap);
  CHECK(made[1].back().count() == cheap);
  CHECK(made[2].size() == 1);
}

TEST_CASE("a last context that is dear is made again where the cheap ones came before it") {
  const auto made = make_contexts_alike({gpu_of({cheap, dear, dear, dear, dear, dear, dear, dear, dear, cheap})}, {});
  CHECK(made[0].size() == 10);
  CHECK(made[0].back().count() == cheap);
}

TEST_CASE(
    "a GPU that has slowed down has no context as cheap as the floor: eight are made, then it is taken as it is") {
  const auto made = make_contexts_alike({gpu_of({2 * dear})}, {{"H200", Seconds{cheap}}});
  CHECK(made[0].size() == 8);
}

TEST_CASE("2 % and 20 ns more is as cheap, and what costs more is made again") {
  const auto made =
      make_contexts_alike({gpu_of({1.03 * cheap, cheap}), gpu_of({1.04 * cheap, cheap})}, {{"H200", Seconds{cheap}}});
  CHECK(made[0].size() == 1);
  CHECK(made[1].size() == 2);
}

TEST_CASE("sixteen are made at most, whatever they cost") {
  std::vector<double> falling;
  for (int i = 0; i < 100; ++i) falling.push_back(i % 2 ? dear * (100 - i) : cheap / (100 + i));
  falling.push_back(dear);
  CHECK(make_contexts_alike({gpu_of({cheap, dear})}, {{"H200", Seconds{cheap / 2}}}).front().size() == 16);
  CHECK(make_contexts_alike({gpu_of(falling)}, {{"H200", Seconds{cheap / 1000}}}).front().size() <= 16);
}

TEST_CASE("of a GPU on which a context fails nothing more is made nor told, and others have theirs") {
  int asked = 0;
  const ContextMaker broken{"H200", [&asked]() -> std::optional<Seconds> {
                              return ++asked == 2 ? std::nullopt : std::optional{Seconds{cheap / 2}};
                            }};
  const auto made = make_contexts_alike({broken, gpu_of({dear, dear, dear, cheap})}, {});
  CHECK(asked == 2);
  CHECK(made[0].empty());
  CHECK(made[1].size() >= 6);  // the two of the other one are of those eight
  CHECK(make_contexts_alike({{"H200", [] { return std::nullopt; }}}, {}).front().empty());
}

TEST_CASE("without GPUs nothing is made") { CHECK(make_contexts_alike({}, {}).empty()); }

}  // namespace
}  // namespace linkscope
