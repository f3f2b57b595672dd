// Values of floating-point numbers of 8 and 16 bits.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace linkscope {

[[nodiscard]] inline double from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// Numbers only: of f16 no infinities, of e4m3 neither of its two codes without a value.
[[nodiscard]] inline double from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  return bits >> 15 ? -size : size;
}
[[nodiscard]] inline double from_e4m3(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const double size = exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
  return bits >> 7 ? -size : size;
}

}  // namespace linkscope
