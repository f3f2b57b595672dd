// Max-min fair rates and flows over time, against answers worked out by hand.
#include "doctest.h"
#include "platform/sim/fluid.hpp"

using namespace linkscope::sim;

namespace {

std::vector<double> rates(std::vector<double> capacities, const std::vector<std::vector<Use>>& uses,
                          std::vector<double> caps = {}) {
  std::vector<Demand> demands;
  for (std::size_t i = 0; i < uses.size(); ++i) demands.push_back({&uses[i], i < caps.size() ? caps[i] : never});
  MaxMin{std::move(capacities)}.solve(demands);
  std::vector<double> found;
  for (const auto& demand : demands) found.push_back(demand.rate);
  return found;
}

void check(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]));
}

}  // namespace

TEST_CASE("flows on one link share it equally") {
  check(rates({12}, {{{0}}}), {12});
  check(rates({12}, {{{0}}, {{0}}}), {6, 6});
  check(rates({12}, {{{0}}, {{0}}, {{0}}}), {4, 4, 4});
}

TEST_CASE("a flow with a cap leaves the rest to the others") {
  check(rates({12}, {{{0}}, {{0}}}, {2}), {2, 10});
  check(rates({12}, {{{0}}, {{0}}, {{0}}}, {never, 3}), {4.5, 3, 4.5});
  check(rates({12}, {{}, {{0}}}, {5}), {5, 12});  // a flow without links gets its cap
}

TEST_CASE(
    "one long flow and the short flows share max-min fairly (Bertsekas and Gallager, figure 6.11 with other numbers)") {
  // Link 0 has 1, link 1 has 2. One flow crosses both, and each link has one more flow. Link 0 gives 0.5 to both of its
  // flows; the rest of link 1 goes to its own flow.
  check(rates({1, 2}, {{{0}, {1}}, {{0}}, {{1}}}), {0.5, 0.5, 1.5});
  // Three links of 10, 4 and 8: two flows share link 1 and get 2 each; the flow of link 0 gets 8, the flow of link 2
  // gets 6.
  check(rates({10, 4, 8}, {{{0}, {1}}, {{1}, {2}}, {{0}}, {{2}}}), {2, 2, 8, 6});
}

TEST_CASE("a weight counts a byte several times") {
  check(rates({12}, {{{0, 2}}}), {6});               // a copy within one memory
  check(rates({12}, {{{0, 2}}, {{0, 1}}}), {4, 4});  // equal rates, 8 + 4
}

TEST_CASE("a stopped flow leaves its resource less by its rate times its weight") {
  check(rates({12}, {{{0, 2}}, {{0, 1}}}, {2}), {2, 8});                  // 2 x 2 of 12 are used
  check(rates({12}, {{{0, 3}}, {{0, 2}}, {{0, 1}}}, {1, 2}), {1, 2, 5});  // 3 x 1 and 2 x 2
  // The first flow stops at link 1, which gives it 1 of 3; it uses 2 of link 0, and 10 remain.
  check(rates({12, 3}, {{{0, 2}, {1, 3}}, {{0, 1}}}), {1, 10});
}

TEST_CASE("rates change when a flow ends") {
  const Path path{{{0, 1}}, never, 0, {}};
  Fluid fluid{{10}};
  fluid.start(0, path, 100, never, 7);
  CHECK(fluid.next_end() == doctest::Approx(10));
  fluid.start(4, path, 30, never, 8);  // 60 remain: both flows at 5
  CHECK(fluid.next_end() == doctest::Approx(10));
  CHECK(fluid.finish() == 8);
  CHECK(fluid.next_end() == doctest::Approx(13));  // 30 remain, at 10
  CHECK(fluid.finish() == 7);
  CHECK(fluid.next_end() == never);
}

TEST_CASE("a flow's own cap holds from its start") {
  const Path path{{{0, 1}}, 4, 0, {}};
  Fluid fluid{{10}};
  fluid.start(0, path, 8, never, 0);
  CHECK(fluid.next_end() == doctest::Approx(2));
  fluid.finish();
  fluid.start(2, path, 8, 1, 0);
  CHECK(fluid.next_end() == doctest::Approx(10));
}

TEST_CASE("cached rates belong to the caps of their flows") {
  const Path path{{{0, 1}}, never, 0, {}};
  Fluid fluid{{1e6}};
  for (int cap = 1; cap <= 1000; ++cap) {  // more than the cache holds
    fluid.rewind();
    fluid.start(0, path, 8, cap, 0);
    CHECK(fluid.next_end() == doctest::Approx(8.0 / cap));
    fluid.finish();
  }
}

TEST_CASE("cached rates are reused for the same flows, but not after a change of capacity") {
  const Path fast{{{0, 1}}, never, 0, {}}, slow{{{0, 1}, {1, 1}}, never, 0, {}};
  Fluid fluid{{10, 2}};
  for (const double capacity : {10.0, 10.0, 4.0}) {
    fluid.set_capacity(0, capacity);
    fluid.rewind();
    fluid.start(0, fast, 100, never, 0);
    CHECK(fluid.next_end() == doctest::Approx(100 / capacity));
    fluid.start(0, slow, 2, never, 1);  // at 2; the other flow gets the rest
    CHECK(fluid.next_end() == doctest::Approx(1));
    CHECK(fluid.finish() == 1);
    CHECK(fluid.next_end() == doctest::Approx(1 + (100 - (capacity - 2)) / capacity));
    CHECK(fluid.finish() == 0);
  }
}
