// Device code as in test_kernels.cpp: products of matrices on tensor cores. Results are compared with plain loops.
#include <cmath>
#include <cstring>

#include "base/pattern.hpp"
#include "base/short_floats.hpp"
#include "kernel_testing.hpp"

namespace emulated {

#include "tensor.inc"

}  // namespace emulated

using namespace emulated;

namespace {

constexpr u64 numbers = 1ull << 63;

using Kernel = void (*)(const char*, const char*, float*, u32, u32, u64);
using Decode = double (*)(const char*);

struct Numbers {
  const char* name;
  Kernel kernel;
  u64 bytes;
  Decode decode;
};

template <class T>
T as(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double cut_to_tf32(const char* at) { return std::bit_cast<float>(as<u32>(at) & ~0x1FFFu); }
double bf16(const char* at) { return linkscope::from_bf16(as<std::uint16_t>(at)); }
double f16(const char* at) { return linkscope::from_f16(as<std::uint16_t>(at)); }

constexpr Numbers formats[] = {{"bf16", linkscope_product_bf16, 2, bf16},
                               {"f16", linkscope_product_f16, 2, f16},
                               {"tf32", linkscope_product_tf32, 4, cut_to_tf32}};

}  // namespace

TEST_CASE("a product on tensor cores computes every element from every slab, by all warps of each block") {
  for (const auto& format : formats) {
    CAPTURE(format.name);
    const u32 m = 256, n = 128;
    const u64 pitch = 5 * 64, k = pitch / format.bytes;  // more slabs than stages
    const Memory a{m * pitch}, b{n * pitch}, c{4 * u64{m} * n};
    a.fill_with_pattern(numbers | 1);
    b.fill_with_pattern(numbers | 2);
    auto* found = reinterpret_cast<float*>(c.data());
    run(
        {m / tensor_tile * (n / tensor_tile), tensor_threads},
        [&] { format.kernel(a.data(), b.data(), found, m, n, pitch); }, Lanes::block);
    u64 wrong = 0;
    for (u32 column = 0; column < n; ++column)
      for (u32 row = 0; row < m; ++row) {
        double sum = 0;
        for (u64 p = 0; p < k; ++p)
          sum += format.decode(a.data() + row * pitch + p * format.bytes) *
                 format.decode(b.data() + column * pitch + p * format.bytes);
        wrong += std::abs(found[u64{column} * m + row] - sum) > 1e-3;
      }
    CHECK(wrong == 0);
    CHECK(c.guards_intact());
  }
}

TEST_CASE("blocks of eight rows of tiles share columns, and every tile has one block") {
  const u32 m = 8 * tensor_tile, n = 2 * tensor_tile;
  const u64 pitch = 64;
  const Memory a{m * pitch}, b{n * pitch}, c{4 * u64{m} * n};
  a.fill_with_pattern(numbers | 3);
  b.fill_with_pattern(numbers | 4);
  auto* found = reinterpret_cast<float*>(c.data());
  run(
      {m / tensor_tile * (n / tensor_tile), tensor_threads},
      [&] { linkscope_product_bf16(a.data(), b.data(), found, m, n, pitch); }, Lanes::block);
  u64 wrong = 0;
  for (u32 column = 0; column < n; ++column)
    for (u32 row = 0; row < m; ++row) {
      double sum = 0;
      for (u64 p = 0; p < pitch / 2; ++p)
        sum += bf16(a.data() + row * pitch + 2 * p) * bf16(b.data() + column * pitch + 2 * p);
      wrong += std::abs(found[u64{column} * m + row] - sum) > 1e-3;
    }
  CHECK(wrong == 0);
}

TEST_CASE("the numbers of 8 and 16 bits have the values of their formats") {
  CHECK(linkscope::from_bf16(0xC040) == -3);
  CHECK(linkscope::from_f16(0x3C00) == 1);
  CHECK(linkscope::from_f16(0xC248) == doctest::Approx(-3.140625));
  CHECK(linkscope::from_f16(0x0001) == std::ldexp(1, -24));
  CHECK(linkscope::from_e4m3(0x38) == 1);
  CHECK(linkscope::from_e4m3(0xFE) == -448);
  CHECK(linkscope::from_e4m3(0x01) == std::ldexp(1, -9));
}

TEST_CASE("bytes of a pattern of numbers of 8 bits have magnitudes from 1 to 2") {
  for (u64 i = 0; i < 1000; ++i) {
    const u64 word = linkscope_pattern_word(0xFFull << 56 | 7, i);
    for (u32 byte = 0; byte < 8; ++byte) {
      const double size = std::abs(linkscope::from_e4m3(static_cast<std::uint8_t>(word >> 8 * byte)));
      CHECK((size >= 1 && size < 2));
    }
  }
}
