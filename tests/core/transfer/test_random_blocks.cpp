// Random blocks and random pieces of files are bit-exact, by every method.
#include "random_blocks.hpp"

using namespace linkscope;

TEST_CASE("random blocks by every method arrive between all kinds of memory, and nothing else changes") {
  const Application with;
  const PinnedMemory pinned{the_driver(), block_space, 0};
  Bytes pageable(block_space), pageable_2(block_space);
  const Ends ends[] = {{with.on_gpu(), pinned.data()},      {pinned.data(), with.on_gpu()},
                       {with.on_gpu(), with.on_gpu(4_MiB)}, {with.on_gpu(), pageable.data()},
                       {pageable.data(), with.on_gpu()},    {pageable.data(), pageable_2.data()}};
  for (const auto method : block_methods) {
    CAPTURE(static_cast<int>(method));
    const auto transfers = transfers_of(method);
    std::mt19937_64 random{70};
    int wrong = 0;
    for (int i = 0; i < (is_long() ? 10'000 : 60); ++i)
      wrong += !blocks_arrive(*transfers, ends[i % std::size(ends)], with.stream->get(), random);
    CHECK(wrong == 0);
    CHECK(transfers->latest_fallback().empty());
  }
}

TEST_CASE("random pieces of a file arrive on a GPU and on the host by every way of reading, and nothing else changes") {
  const Application with;
  const auto data = random_bytes(3_MiB + 77, 71);
  const File file{data};
  const FileReader reader{file.path.string()};
  Bytes host(4_MiB);
  for (const auto& way : read_ways) {
    CAPTURE(std::string{way.name});
    const auto transfers = transfers_of(way);
    std::mt19937_64 random{72};
    int wrong = 0;
    pretend_nothing_cached(way.cold);
    for (int i = 0; i < (is_long() ? 10'000 : 40); ++i)
      wrong +=
          !pieces_arrive(*transfers, reader, data, i % 4 ? with.on_gpu() : host.data(), with.stream->get(), random);
    pretend_nothing_cached(false);
    CHECK(wrong == 0);
    CHECK((transfers->latest_fallback().empty() || reader.direct() < 0));
  }
}
