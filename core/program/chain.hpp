// The cycle that a pointer chase follows: line i is followed by line (a i + c) mod n, n a power of two. With a = 1 mod
// 4 and c odd the cycle visits every line once (Hull and Dobell 1962), neighbours in it are far apart, and the end of a
// chase of k steps has a closed form, which verifies the chase. Compiled by g++ and by NVRTC.
#pragma once
#include "base/pattern.hpp"

// Two cache lines of 128 B: no line is fetched along with its neighbour.
enum : unsigned long long {
  linkscope_chain_line = 256,
  linkscope_chain_a = 0x2545F4914F6CDD1Dull,
  linkscope_chain_c = 0x9E3779B97F4A7C15ull
};

LINKSCOPE_BOTH unsigned long long linkscope_chain_next(unsigned long long line, unsigned long long lines) {
  return (linkscope_chain_a * line + linkscope_chain_c) & (lines - 1);
}

#ifndef __CUDACC__
/// The line that a chase from line 0 has reached after `steps` steps: the step applied 1, 2, 4, ... times at once.
inline unsigned long long linkscope_chain_after(unsigned long long steps, unsigned long long lines) {
  unsigned long long line = 0, a = linkscope_chain_a, c = linkscope_chain_c;
  for (; steps; steps >>= 1) {
    if (steps & 1) line = a * line + c;
    c = a * c + c;
    a *= a;
  }
  return line & (lines - 1);
}
#endif
