// A class of cold files says who reads them: io_uring, or threads.
#include "host/uring.hpp"
#include "random_blocks.hpp"

using namespace linkscope;

TEST_CASE("a class without reads of io_uring has threads that read past the page cache") {
  const Application with;
  const auto data = random_bytes(3_MiB + 77, 71);
  const File file{data};
  const FileReader reader{file.path.string()};
  pretend_nothing_cached(true);
  int refused = 0;
  const bool can = Uring::open(1, refused) && reader.direct() >= 0;
  Transfers transfers{small_chunks()};
  for (const u32 in_flight : {0u, 3u}) {
    transfers.set(StagedWork::read_cold, data.size(), {false, 3, 128_KiB, 2, 1, 0, 0, 1, 1, false, false, in_flight});
    uring_tells_the_truth();
    ReadCounts counts;
    Progress progress;
    std::memset(with.on_gpu(), 0, data.size());
    transfers.read(reader, {{{0, data.size(), with.on_gpu()}}}, with.stream->get(), counts, progress);
    with.stream->synchronize();
    CHECK(same(with.on_gpu(), data.data(), data.size()));
    CHECK(counts.uring_refused == 0);
    CHECK(most_in_flight() == (can ? in_flight : 0));
    CHECK(counts.uring == (can && in_flight ? data.size() : 0));
    CHECK((reader.direct() < 0 || counts.direct == data.size()));
  }
  pretend_nothing_cached(false);
}
