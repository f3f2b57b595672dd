// The kernels that copy between memories of GPUs (core/transfer/kernels), as C++ on the emulated GPU.
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "kernel_testing.hpp"

namespace emulated {

#include "device_copy.inc"

}  // namespace emulated

using namespace emulated;

namespace {

/// A source that ends with its range, so that a sanitizer finds reads beyond it.
struct Source {
  explicit Source(u64 bytes, u64 offset) : all{std::make_unique<char[]>(offset + bytes)}, start{all.get() + offset} {
    std::mt19937_64 random{bytes};
    for (u64 i = 0; i < bytes; ++i) start[i] = static_cast<char>(random());
  }
  std::unique_ptr<char[]> all;
  char* start;
};

/// Runs a kernel and checks the range and the memory beside it.
template <class Kernel>
bool is_exact(const Launch& shape, u64 bytes, u64 from_offset, u64 to_offset, Kernel kernel) {
  const Source source{bytes, from_offset};
  const Memory to{bytes + 64};
  std::memset(to.data(), 'x', to.bytes());
  char* target = to.data() + 16 + to_offset;
  run(shape, [&] { kernel(target, source.start); });
  std::string expected(to.bytes(), 'x');
  expected.replace(16 + to_offset, bytes, source.start, bytes);
  return std::memcmp(to.data(), expected.data(), expected.size()) == 0 && to.guards_intact();
}

}  // namespace

TEST_CASE("the copy by SMs moves every byte between any offsets and no other byte") {
  int wrong = 0;
  for (const auto& shape : {Launch{1, 32}, Launch{3, 160}, Launch{8, 1024}})
    for (const u64 bytes : {1, 3, 7, 8, 9, 16, 31, 100, 4099, 70'001})
      for (u64 from = 0; from < 16; from += bytes > 1000 ? 3 : 1)
        for (u64 to = 0; to < 16; to += bytes > 1000 ? 5 : 1)
          wrong += !is_exact(shape, bytes, from, to,
                             [&](char* target, const char* start) { linkscope_copy_by_sm(target, start, bytes); });
  CHECK(wrong == 0);
}

TEST_CASE("the copy by TMA moves every byte of ranges that have the same offset within 16, and no other byte") {
  constexpr u64 piece = 16384 - 128;
  for (const unsigned blocks : {1u, 3u, 132u})
    for (const u64 bytes : {u64{1}, u64{15}, u64{16}, u64{40}, piece - 1, piece + 33, 4 * piece + 7, u64{300'005}})
      for (const u64 offset : {0, 1, 8, 15}) {
        CAPTURE(bytes);
        CAPTURE(offset);
        const Memory from{bytes + 16}, to{bytes + 64};
        from.fill_with_pattern(bytes);
        std::memset(to.data(), 'x', to.bytes());
        std::string expected(to.bytes(), 'x');
        expected.replace(16 + offset, bytes, from.data() + offset, bytes);
        run({blocks, 32}, [&] { linkscope_copy_by_tma(to.data() + 16 + offset, from.data() + offset, bytes); });
        CHECK(std::memcmp(to.data(), expected.data(), expected.size()) == 0);
        CHECK(to.guards_intact());
      }
}
