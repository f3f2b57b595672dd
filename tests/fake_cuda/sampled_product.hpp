// A product of matrices that the fake libraries and the fake driver make: C, column by column, is zero but for the elements
// that linkscope compares (base/sampled.hpp). A whole product would take too long.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/sampled.hpp"
#include "base/short_floats.hpp"

namespace fake_library {

enum class Format { f32, f64, bf16, f16, e4m3 };

inline std::size_t bytes_of(Format format) {
  return format == Format::f64 ? 8 : format == Format::f32 ? 4 : format == Format::e4m3 ? 1 : 2;
}

inline double number_of(Format format, const char* at) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, bytes_of(format));
  switch (format) {
    case Format::f32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case Format::f64:
      return std::bit_cast<double>(bits);
    case Format::bf16:
      return linkscope::from_bf16(static_cast<std::uint16_t>(bits));
    case Format::f16:
      return linkscope::from_f16(static_cast<std::uint16_t>(bits));
    case Format::e4m3:
      return linkscope::from_e4m3(static_cast<std::uint8_t>(bits));
  }
  return 0;
}

/// Rounded towards zero; f16 of at least 2^-14 or 0. Nothing is stored as e4m3.
inline void put(Format format, char* at, double value) {
  std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  if (format != Format::f64) bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (format == Format::bf16) bits >>= 16;
  if (format == Format::f16) {
    const std::uint64_t exponent = bits >> 23 & 255, sign = bits >> 31 << 15;
    bits = sign | (exponent > 112 ? (exponent - 112) << 10 | (bits >> 13 & 1023) : 0);
  }
  std::memcpy(at, &bits, bytes_of(format));
}

struct SampledProduct {
  std::uint64_t m, n, k;
  const char *a, *b;
  char* c;
  Format in, out;
  bool transposed_a = false;

  void run(bool damaged) const {
    std::memset(c, 0, m * n * bytes_of(out));
    for (std::uint64_t sample = 0; sample < linkscope::most_sampled; ++sample) {
      const std::uint64_t where = linkscope::sampled_at(sample, m * n), row = where % m, column = where / m;
      double sum = damaged && sample == 0 ? 1000 : 0;
      for (std::uint64_t p = 0; p < k; ++p)
        sum += number_of(in, a + (transposed_a ? p + row * k : row + p * m) * bytes_of(in)) *
               number_of(in, b + (p + column * k) * bytes_of(in));
      put(out, c + where * bytes_of(out), sum);
    }
  }
};

}  // namespace fake_library
