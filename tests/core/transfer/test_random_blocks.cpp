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
  for (const auto method : {BlockMethod::loop, BlockMethod::batch, BlockMethod::kernel}) {
    CAPTURE(static_cast<int>(method));
    Transfers transfers{small_chunks()};
    const bool plain = method == BlockMethod::loop;
    for (const auto work : {StagedWork::packed_to_gpu, StagedWork::packed_to_host})
      for (const u64 mean : packed_classes) transfers.set(work, mean, {plain, 3, 100_KiB, 2, 2, 0, 8, 4_KiB});
    for (const auto towards : {Towards::gpu, Towards::host})
      for (const u64 mean : block_classes) transfers.set(towards, mean, {method, 8});
    std::mt19937_64 random{70};
    int wrong = 0;
    for (int i = 0; i < (is_long() ? 10'000 : 60); ++i)
      wrong += !blocks_arrive(transfers, ends[i % std::size(ends)], with.stream->get(), random);
    CHECK(wrong == 0);
    CHECK(transfers.latest_fallback().empty());
  }
}

TEST_CASE("random pieces of a file arrive on a GPU and on the host by every way of reading, and nothing else changes") {
  const Application with;
  const auto data = random_bytes(3_MiB + 77, 71);
  const File file{data};
  const FileReader reader{file.path.string()};
  Bytes host(4_MiB);
  const struct {
    std::string name;
    bool cold, plain, cufile;
  } ways[] = {{"cached", false, false, false},
              {"cold", true, false, false},
              {"plain", true, true, false},
              {"cuFile", true, false, true}};
  for (const auto& [name, cold, plain, cufile] : ways) {
    CAPTURE(name);
    Transfers transfers{small_chunks()};
    for (const auto work : {StagedWork::read_cached, StagedWork::read_cold})
      for (const u64 start : file_classes) transfers.set(work, start, {plain, 3, 100_KiB, 4, 1, 0, 0, 1, 1, cufile});
    std::mt19937_64 random{72};
    int wrong = 0;
    pretend_nothing_cached(cold);
    for (int i = 0; i < (is_long() ? 10'000 : 40); ++i)
      wrong += !pieces_arrive(transfers, reader, data, i % 4 ? with.on_gpu() : host.data(), with.stream->get(), random);
    pretend_nothing_cached(false);
    CHECK(wrong == 0);
    CHECK((transfers.latest_fallback().empty() || reader.direct() < 0));
  }
}
