// Random numbers that depend on names and counters only, never on the order of calls, and that are equal on every
// computer: plain IEEE arithmetic without libm (whose last bit differs between versions and CPUs).
#pragma once
#include <string_view>

#include "base/units.hpp"

namespace linkscope::sim {

/// FNV-1a over the text, then mixed with the seed.
constexpr u64 mix(u64 x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

constexpr u64 hash(u64 seed, std::string_view text) {
  u64 h = 0xCBF29CE484222325ull;
  for (const char c : text) h = (h ^ static_cast<u8>(c)) * 0x100000001B3ull;
  return mix(h ^ mix(seed + 0x9E3779B97F4A7C15ull));
}

constexpr u64 hash(u64 seed, u64 counter) { return mix(seed + (counter + 1) * 0x9E3779B97F4A7C15ull); }

/// In [0, 1).
constexpr double uniform(u64 h) { return static_cast<double>(h >> 11) * 0x1p-53; }

/// Mean 0, variance 1: the sum of twelve uniform numbers of 16 bit less its mean (Irwin-Hall; ends at 6 sigma).
constexpr double normal(u64 h) {
  u64 sum = 0;
  for (u64 word = 0; word < 3; ++word) {
    const u64 bits = hash(h, word);
    sum += (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48);
  }
  return (static_cast<double>(sum) + 6.0) / 65536.0 - 6.0;  // + 6: each term is a floor, half a unit low
}

/// e^x for |x| < 4 or so, to 1e-15: the series of x/32, squared five times.
constexpr double exponential(double x) {
  const double y = x / 32;
  double term = 1, sum = 1;
  for (int n = 1; n < 12; ++n) {
    term *= y / n;
    sum += term;
  }
  for (int n = 0; n < 5; ++n) sum *= sum;
  return sum;
}

/// A log-normal factor with median 1.
constexpr double factor(double sigma, u64 h) { return sigma == 0 ? 1.0 : exponential(sigma * normal(h)); }

}  // namespace linkscope::sim
