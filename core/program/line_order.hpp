// The order in which accesses at random visit the lines of a range: a permutation of 0 … n-1, n any number, that follows
// from a seed. Compiled by g++ and by NVRTC.
//
// Multiplying by an odd number, adding, and xor with the upper half are each one-to-one on k bits, and so are three
// rounds of them. A result of n or more goes through the rounds again until it is below n, which keeps the mapping
// one-to-one (cycle walking, Black and Rogaway 2002). Less than one repetition is needed on average, because 2^k is
// less than 2 n.
#pragma once
#include "base/pattern.hpp"

enum : unsigned long long { linkscope_line_order_seed = 0x6C696E656F726465ull };

/// The smallest 2^k - 1 that holds all lines.
LINKSCOPE_BOTH unsigned long long linkscope_line_mask(unsigned long long lines) {
  unsigned long long mask = lines - 1;
  for (unsigned by = 1; by < 64; by *= 2) mask |= mask >> by;
  return mask;
}

LINKSCOPE_BOTH unsigned linkscope_line_half(unsigned long long mask) {
  unsigned bits = 0;
  for (; mask; mask >>= 1) ++bits;
  return bits / 2 + 1;
}

/// The line that access i visits; `mask` and `half` come from the two functions above.
LINKSCOPE_BOTH unsigned long long linkscope_line_at(unsigned long long i, unsigned long long lines,
                                                    unsigned long long mask, unsigned half) {
  unsigned long long x = i;
  do {
    x = (x * 0x9E3779B97F4A7C15ull + linkscope_line_order_seed) & mask;
    x ^= x >> half;
    x = (x * 0xBF58476D1CE4E5B9ull) & mask;
    x ^= x >> half;
    x = (x * 0x94D049BB133111EBull) & mask;
    x ^= x >> half;
  } while (x >= lines);
  return x;
}
