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

TEST_CASE("if the minimum cost of a GPU model is known, the first context at that cost is kept") {
  const auto made = make_contexts_alike({gpu_of({dear, dear, cheap, dear}), gpu_of({1.02 * cheap, dear})},
                                        {{"H200", Seconds{cheap}}});
  CHECK(seconds(made[0]) == std::vector{dear, dear, cheap});
  CHECK(seconds(made[1]) == std::vector{1.02 * cheap});
}

TEST_CASE("the GPUs of an unknown model make eight contexts together") {
  const auto four = make_contexts_alike({gpu_of({cheap}), gpu_of({cheap}), gpu_of({cheap}), gpu_of({cheap})}, {});
  for (const auto& of : four) CHECK(of.size() == 2);
  CHECK(make_contexts_alike({gpu_of({cheap})}, {}).front().size() == 8);
}

TEST_CASE(
    "a cheap context on one GPU makes other GPUs of its model replace expensive contexts, but no GPU of another "
    "model") {
  const auto made =
      make_contexts_alike({gpu_of({dear, dear, dear, dear, dear, cheap}), gpu_of({cheap}), gpu_of({3 * dear}, "A100")},
                          {{"A100", Seconds{3 * dear}}});
  CHECK(made[0].back().count() == cheap);
  CHECK(made[1].back().count() == cheap);
  CHECK(made[2].size() == 1);
}

TEST_CASE("an expensive last context is made again if an earlier context was cheap") {
  const auto made = make_contexts_alike({gpu_of({cheap, dear, dear, dear, dear, dear, dear, dear, dear, cheap})}, {});
  CHECK(made[0].size() == 10);
  CHECK(made[0].back().count() == cheap);
}

TEST_CASE("a GPU whose contexts all exceed the known minimum keeps its eighth context") {
  const auto made = make_contexts_alike({gpu_of({2 * dear})}, {{"H200", Seconds{cheap}}});
  CHECK(made[0].size() == 8);
}

TEST_CASE("a context within 2 % plus 20 ns of the minimum is cheap; a more expensive context is made again") {
  const auto made =
      make_contexts_alike({gpu_of({1.03 * cheap, cheap}), gpu_of({1.04 * cheap, cheap})}, {{"H200", Seconds{cheap}}});
  CHECK(made[0].size() == 1);
  CHECK(made[1].size() == 2);
}

TEST_CASE("a GPU makes at most 16 contexts") {
  std::vector<double> falling;
  for (int i = 0; i < 100; ++i) falling.push_back(i % 2 ? dear * (100 - i) : cheap / (100 + i));
  falling.push_back(dear);
  CHECK(make_contexts_alike({gpu_of({cheap, dear})}, {{"H200", Seconds{cheap / 2}}}).front().size() == 16);
  CHECK(make_contexts_alike({gpu_of(falling)}, {{"H200", Seconds{cheap / 1000}}}).front().size() <= 16);
}

TEST_CASE("a GPU on which a context fails makes no more contexts and reports no cost; other GPUs continue") {
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

TEST_CASE("without GPUs no context is made") { CHECK(make_contexts_alike({}, {}).empty()); }

}  // namespace
}  // namespace linkscope
