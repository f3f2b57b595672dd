// Which of the contexts that GPUs make in turn are kept.
#include <doctest.h>

#include <memory>
#include <set>

#include "platform/cuda/contexts.hpp"

namespace linkscope {
namespace {

constexpr double cheap = 1.5e-6, expensive = 1.64e-6;

/// A GPU whose contexts have these costs in order; every further context has the last cost.
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
  const auto made =
      make_contexts_alike({gpu_of({expensive, expensive, cheap, expensive}), gpu_of({1.02 * cheap, expensive})},
                          {{"H200", Seconds{cheap}}});
  CHECK(seconds(made[0]) == std::vector{expensive, expensive, cheap});
  CHECK(seconds(made[1]) == std::vector{1.02 * cheap});
}

TEST_CASE("a GPU that is slower than others of its model in all contexts is content with its own known minimum") {
  auto slow = gpu_of({1.1 * expensive, 1.1 * cheap});
  const Floors floors{{"H200", Seconds{cheap}}};
  CHECK(make_contexts_alike({slow}, floors).front().size() == 8);
  slow = gpu_of({1.1 * expensive, 1.1 * cheap});
  slow.floor = Seconds{1.1 * cheap};
  CHECK(seconds(make_contexts_alike({slow}, floors).front()) == std::vector{1.1 * expensive, 1.1 * cheap});
  slow = gpu_of({1.1 * cheap});
  slow.floor = Seconds{1.1 * cheap};
  CHECK(make_contexts_alike({slow}, {}).front().size() == 1);
}

TEST_CASE("the GPUs of an unknown model make eight contexts together") {
  const auto four = make_contexts_alike({gpu_of({cheap}), gpu_of({cheap}), gpu_of({cheap}), gpu_of({cheap})}, {});
  for (const auto& contexts : four) CHECK(contexts.size() == 2);
  CHECK(make_contexts_alike({gpu_of({cheap})}, {}).front().size() == 8);
}

TEST_CASE(
    "a cheap context on one GPU makes other GPUs of its model replace expensive contexts, but no GPU of another "
    "model") {
  const auto made = make_contexts_alike({gpu_of({expensive, expensive, expensive, expensive, expensive, cheap}),
                                         gpu_of({cheap}), gpu_of({3 * expensive}, "A100")},
                                        {{"A100", Seconds{3 * expensive}}});
  CHECK(made[0].back().count() == cheap);
  CHECK(made[1].back().count() == cheap);
  CHECK(made[2].size() == 1);
}

TEST_CASE("an expensive last context is made again if an earlier context was cheap") {
  const auto made = make_contexts_alike(
      {gpu_of({cheap, expensive, expensive, expensive, expensive, expensive, expensive, expensive, expensive, cheap})},
      {});
  CHECK(made[0].size() == 10);
  CHECK(made[0].back().count() == cheap);
}

TEST_CASE("the cheapest of a GPU's own contexts is its minimum, also if it was not the first") {
  const auto made = make_contexts_alike(
      {gpu_of({expensive, cheap, expensive, expensive, expensive, expensive, expensive, expensive, expensive, cheap})},
      {});
  CHECK(made[0].size() == 10);
  CHECK(made[0].back().count() == cheap);
}

TEST_CASE("a GPU whose contexts all exceed the known minimum keeps its eighth context") {
  const auto made = make_contexts_alike({gpu_of({2 * expensive})}, {{"H200", Seconds{cheap}}});
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
  for (int i = 0; i < 100; ++i) falling.push_back(i % 2 ? expensive * (100 - i) : cheap / (100 + i));
  falling.push_back(expensive);
  CHECK(make_contexts_alike({gpu_of({cheap, expensive})}, {{"H200", Seconds{cheap / 2}}}).front().size() == 16);
  CHECK(make_contexts_alike({gpu_of(falling)}, {{"H200", Seconds{cheap / 1000}}}).front().size() <= 16);
}

TEST_CASE("a GPU on which a context fails makes no more contexts and reports no cost; other GPUs continue") {
  int requests = 0;
  const ContextMaker broken{"H200", [&requests]() -> std::optional<Seconds> {
                              return ++requests == 2 ? std::nullopt : std::optional{Seconds{cheap / 2}};
                            }};
  const auto made = make_contexts_alike({broken, gpu_of({expensive, expensive, expensive, cheap})}, {});
  CHECK(requests == 2);
  CHECK(made[0].empty());
  CHECK(made[1].size() >= 6);  // the failed GPU made two of the eight
  CHECK(make_contexts_alike({{"H200", [] { return std::nullopt; }}}, {}).front().empty());
}

TEST_CASE("the cost of a context is the mean slope between two batches, without the fixed cost of a batch") {
  constexpr double each = 1.5e-6, fixed = 40e-6, by_stream = 0.1e-6, by_kib = 1e-9, warm_up = 1e-3;
  std::set<std::size_t> seen;
  const auto cost = mean_cost([&](std::size_t stream, u64 bytes, unsigned count) {
    const double first = seen.insert(stream).second ? warm_up : 0;
    return Seconds{fixed + first +
                   count *
                       (each + by_stream * static_cast<double>(stream) + by_kib * static_cast<double>(bytes) / 1024)};
  });
  CHECK(seen == std::set<std::size_t>{0, 1, 2});
  CHECK(cost.count() == doctest::Approx(each + by_stream + 34 * by_kib).scale(0).epsilon(1e-9));  // of 4 KiB and 64 KiB
}

TEST_CASE("a short batch that is interrupted does not make a context cheap") {
  int batches = 0;
  const auto cost = mean_cost([&](std::size_t, u64, unsigned count) {
    const double interrupted = ++batches == 2 || batches == 9 ? 1.0 : 0.0;  // the first after each warm-up
    return Seconds{interrupted + 40e-6 + count * 1.5e-6};
  });
  CHECK(cost.count() == doctest::Approx(1.5e-6));
}

TEST_CASE("the cost of a context is positive although noise exceeds a batch") {
  CHECK(mean_cost([](std::size_t, u64, unsigned count) { return Seconds{1e-3 / count}; }) > Seconds{0});
}

TEST_CASE("without GPUs no context is made") { CHECK(make_contexts_alike({}, {}).empty()); }

}  // namespace
}  // namespace linkscope
