// Random numbers of the simulation: the same on every computer, with the stated distributions.
#include <cmath>

#include "doctest.h"
#include "platform/sim/noise.hpp"

using namespace linkscope;
using namespace linkscope::sim;

TEST_CASE("random numbers are the same on every computer") {
  CHECK(hash(1, "h2d/ce/numa:0.pinned->gpu:0.device/8#0") == hash(1, "h2d/ce/numa:0.pinned->gpu:0.device/8#0"));
  CHECK(hash(1, "a#0") != hash(1, "a#1"));
  CHECK(hash(1, "a#0") != hash(2, "a#0"));
  CHECK(hash(0, u64{0}) == 0xE220A8397B1DCDAFull);                          // splitmix64's first number from seed 0
  static_assert(normal(hash(0, u64{0})) == normal(0xE220A8397B1DCDAFull));  // plain arithmetic, so it is constexpr
}

TEST_CASE("exponential agrees with libm") {
  for (double x = -3; x <= 3; x += 0.0625) CHECK(exponential(x) == doctest::Approx(std::exp(x)).epsilon(1e-13));
  CHECK(exponential(0) == 1);
  CHECK(factor(0, 12345) == 1);
}

TEST_CASE("normal has mean 0, variance 1, and tails") {
  constexpr int count = 100000;
  double sum = 0, squares = 0;
  int beyond = 0;
  for (u64 i = 0; i < count; ++i) {
    const double x = normal(hash(7, i));
    sum += x;
    squares += x * x;
    beyond += std::abs(x) > 1.96;
  }
  CHECK(std::abs(sum / count) < 4 / std::sqrt(count));
  CHECK(squares / count == doctest::Approx(1).epsilon(0.02));
  CHECK(beyond / static_cast<double>(count) == doctest::Approx(0.05).epsilon(0.06));
}

TEST_CASE("uniform covers [0, 1)") {
  double least = 1, most = 0;
  for (u64 i = 0; i < 10000; ++i) {
    const double x = uniform(hash(3, i));
    least = std::min(least, x);
    most = std::max(most, x);
  }
  CHECK(least >= 0);
  CHECK(least < 0.001);
  CHECK(most < 1);
  CHECK(most > 0.999);
}
