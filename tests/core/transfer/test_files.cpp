// Files that go to a GPU or to host memory: exact pieces, and errors of the system's calls.
#include <fcntl.h>

#include <cstring>
#include <filesystem>

#include "file_faults.hpp"
#include "system_calls.hpp"

using namespace linkscope;

TEST_CASE("pieces of a file are exact on a GPU and on the host") {
  const Application with;
  const auto data = random_bytes(8_MiB + 77, 60);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  for (const u64 longest : {u64{50}, u64{5000}, u64{300'000}, u64{3'000'000}}) {
    CAPTURE(longest);
    CHECK(read_all(with, reader, data, longest).empty());
  }
}

TEST_CASE("a reading has the chunk and the reads in flight of its class, and a plain one uses the page cache") {
  const Application with;
  const auto data = random_bytes(3_MiB + 77, 69);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  Transfers transfers{small_chunks()};
  const auto read = [&](StagedWork work, const Knobs& knobs) {
    transfers.set(work, data.size(), knobs);
    ReadCounts counts;
    Progress progress;
    std::memset(with.on_gpu(), 0, data.size());
    fake().fail(nullptr, 0, 0, 0);
    transfers.read(reader, {{{0, data.size(), with.on_gpu()}}}, with.stream->get(), counts, progress);
    with.stream->synchronize();
    CHECK(same(with.on_gpu(), data.data(), data.size()));
    return counts.buffered.load();
  };
  read(StagedWork::read_cached, {false, 2, 256_KiB, 2, 1, 0});
  CHECK(fake().calls("cuMemcpyHtoDAsync") < 20);
  read(StagedWork::read_cached, {false, 2, 64_KiB, 2, 1, 0});
  CHECK(fake().calls("cuMemcpyHtoDAsync") > 40);
  CHECK(read(StagedWork::read_cached, {true, 2, 64_KiB, 2, 1, 0}) == data.size());
  injected.nothing_cached = true;
  CHECK(read(StagedWork::read_cold, {true, 2, 64_KiB, 2, 1, 0}) == data.size());
  for (const u32 in_flight : {2u, 5u}) {
    injected.in_flight = 0;
    read(StagedWork::read_cold, {false, 1, 128_KiB, 2, 1, 0, 0, 1, 1, false, false, in_flight});
    if (has_uring(reader)) CHECK(injected.in_flight == in_flight);
  }
}

TEST_CASE("reading a cold file leaves it out of the page cache, and a cached file is read from there") {
  const Application with;
  const auto data = random_bytes(4_MiB + 10, 68);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  ReadCounts warm;
  {
    const Resident all{file.path};
    CHECK(read_whole(with, reader, data, warm).empty());
  }
  CHECK(warm.cached == data.size());
  evict(file.path);
  if (reader.direct() < 0 || cached_pages(file.path) > 0) return;  // a file system in memory
  ReadCounts cold;
  CHECK(read_whole(with, reader, data, cold).empty());
  CHECK(cold.direct == data.size());
  CHECK(cached_pages(file.path) == 0);
  // One part is brought back: it alone comes from the cache.
  const Resident part{file.path, 1_MiB, 1_MiB};
  ReadCounts mixed;
  CHECK(read_whole(with, reader, data, mixed).empty());
  CHECK(mixed.cached >= 512_KiB);
  CHECK(mixed.direct >= 2_MiB);
}

TEST_CASE("pieces are exact if nothing is cached, if the system does not say, and if reads are short") {
  const Application with;
  const auto data = random_bytes(3_MiB + 77, 61);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  for (const int error : {EAGAIN, EOPNOTSUPP}) {
    injected.nowait_error = error;
    for (const u64 most : {~u64{0}, u64{10'000}, u64{4096}}) {
      injected.most = most;
      CHECK(read_all(with, reader, data, 200'000).empty());
    }
  }
}

TEST_CASE("an error of the system ends the reading with its text and leaks nothing") {
  const Application with;
  const auto data = random_bytes(3_MiB, 62);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  const u64 held = fake().held();
  injected.nowait_error = EAGAIN;
  injected.pread_error = EIO;
  for (const u64 after : {0, 3}) {
    injected.pread_after = after;
    injected.preads = 0;
    CHECK(read_all(with, reader, data, 300'000).find("Input/output error") != std::string::npos);
  }
  CHECK(fake().held() == held);
}

TEST_CASE("an error of the driver ends the reading and leaks nothing") {
  const Application with;
  const auto data = random_bytes(3_MiB, 63);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  const u64 held = fake().held();
  for (const char* symbol : {"cuMemcpyHtoDAsync", "cuEventRecord", "cuMemHostAlloc", "cuPointerGetAttributes"}) {
    const Failing failing{symbol, 1};
    const auto error = read_all(with, reader, data, 300'000);
    if (std::string{symbol} != "cuMemHostAlloc") CHECK(error.find("NOT_PERMITTED") != std::string::npos);
  }
  CHECK(fake().held() == held);
}

TEST_CASE("a reading that was cancelled says so, and not that the data is there") {
  const Application with;
  const auto data = random_bytes(3_MiB, 64);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  Transfers transfers{small_chunks()};
  Bytes host(data.size());
  for (auto* dst : {with.on_gpu(), host.data()}) {
    ReadCounts counts;
    Progress progress;
    progress.cancelled = true;
    const std::vector<FilePiece> all{{0, data.size(), dst}};
    CHECK_THROWS_AS(transfers.read(reader, all, with.stream->get(), counts, progress), Cancelled);
  }
}

TEST_CASE("a reading to two GPUs, to memory that cannot be written or on a captured stream is refused with the cure") {
  const Application with;
  const OnOther elsewhere{with, 4096};
  const TemporaryFile file{random_bytes(4096, 71)};
  const FileReader reader{file.path.string()};
  Transfers transfers{small_chunks()};
  const auto refused = [&](const std::vector<FilePiece>& pieces) {
    ReadCounts counts;
    Progress progress;
    return error_of([&] { transfers.read(reader, pieces, with.stream->get(), counts, progress); });
  };
  Bytes host(4096);
  for (std::byte* other : {elsewhere.at(), host.data()}) {
    CHECK(refused({{0, 8, with.on_gpu()}, {8, 8, other}}).find("call it once for each of them") != std::string::npos);
    CHECK(refused({{0, 8, other}, {8, 8, with.on_gpu()}}).find("call it once for each of them") != std::string::npos);
  }
  Pages pages{4096, PROT_READ};
  std::byte* read_only = pages.at();
  CHECK(refused({{0, 8, read_only}}).find("none that this process can write") != std::string::npos);
  pages.free();
  CHECK(refused({{0, 8, read_only}}).find("none that this process can write") != std::string::npos);
  CHECK(refused({{4090, 8, host.data()}}).find("it is truncated") != std::string::npos);
  const Capture capture{with.stream->get()};
  CHECK(refused({{0, 8, with.on_gpu()}}).find("that is not captured") != std::string::npos);
  the_driver().cuGraphDestroy(capture.end());
}

TEST_CASE("files that cannot be read are refused with the reason") {
  CHECK(error_of([] { FileReader{"/nonexistent"}; }).find("No such file") != std::string::npos);
  CHECK(error_of([] { FileReader{"/tmp"}; }).find("no regular file") != std::string::npos);
}
