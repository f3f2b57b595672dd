// The kernel that moves scattered blocks (core/transfer/kernels), as C++ on the emulated GPU: any sizes and addresses.
#include <cstring>
#include <random>
#include <vector>

#include "kernel_testing.hpp"

namespace emulated {

#include "copy_blocks.inc"

}  // namespace emulated

using namespace emulated;

namespace {

/// Blocks one after the other with gaps, each end at its own offset within 16 bytes.
struct Scattered {
  std::vector<linkscope_block> table;
  std::vector<char> from, to;
  explicit Scattered(u64 seed, u64 longest) : from(1 << 20), to(1 << 20, 'x') {
    std::mt19937_64 random{seed};
    for (auto& byte : from) byte = static_cast<char>(random());
    for (u64 at = 0; table.size() < 60 && at + longest + 64 < from.size();) {
      const u64 bytes = random() % (longest + 1);
      table.push_back({reinterpret_cast<u64>(to.data() + at + random() % 32),
                       reinterpret_cast<u64>(from.data() + at + random() % 32), bytes});
      at += bytes + 64;
    }
  }
  [[nodiscard]] std::vector<char> expected() const {
    std::vector<char> made(to.size(), 'x');
    for (const auto& block : table)
      std::memcpy(made.data() + (block.dst - reinterpret_cast<u64>(to.data())),
                  from.data() + (block.src - reinterpret_cast<u64>(from.data())), block.bytes);
    return made;
  }
};

}  // namespace

TEST_CASE("the block kernel moves every byte of every block and no other byte") {
  for (const auto& shape : {Launch{1, 32}, Launch{3, 160}, Launch{8, 1024}})
    for (const u64 longest : {1, 15, 100, 5000, 17'000}) {
      CAPTURE(longest);
      const Scattered scattered{longest, longest};
      const auto expected = scattered.expected();
      run(shape, [&] { linkscope_copy_blocks(scattered.table.data(), scattered.table.size()); });
      CHECK(scattered.to == expected);
    }
}
