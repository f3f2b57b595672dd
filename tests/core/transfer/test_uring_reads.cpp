// Reads of cold files by io_uring: refused, failing, short and cancelled ones.
#include <cerrno>
#include <filesystem>

#include "file_faults.hpp"
#include "system_calls.hpp"

using namespace linkscope;

TEST_CASE("pieces that are not cached are exact, also where io_uring is refused") {
  const Application with;
  const auto data = random_bytes(5_MiB + 77, 64);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  injected.nothing_cached = true;
  for (const int refused : {0, EPERM, ENOSYS}) {
    injected.uring_error = refused;
    for (const u64 longest : {u64{5000}, u64{300'000}, u64{3'000'000}})
      CHECK(read_all(with, reader, data, longest).empty());
    ReadCounts counts;
    CHECK(read_whole(with, reader, data, counts).empty());
    if (refused) {
      CHECK(counts.uring_refused == refused);
      CHECK(counts.uring == 0);
    } else if (has_uring(reader)) {
      CHECK(counts.uring == data.size());
      CHECK(counts.direct == counts.uring);
    }
    CHECK(counts.cached + counts.direct + counts.buffered == data.size());
  }
}

TEST_CASE("reads of io_uring that fail or are short are made again, and an error of the disk is reported") {
  const Application with;
  const auto data = random_bytes(3_MiB + 500, 65);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  const u64 held = fake().held();
  injected.nothing_cached = true;
  for (const std::int64_t moved : {0, 100, 4096, 100'000}) {
    injected.moved = moved;
    ReadCounts counts;
    CHECK(read_whole(with, reader, data, counts).empty());
    CHECK(counts.direct + counts.buffered == data.size());
    // The kernel did move the rest, so the data alone does not tell that it was read again.
    CHECK((moved < 4096 ? counts.uring == 0 : counts.uring < data.size()));
  }
  injected.moved = -1;
  for (const int error : {EINVAL, EFAULT, EINTR}) {
    injected.moved_error = error;
    ReadCounts counts;
    CHECK(read_whole(with, reader, data, counts).empty());
    CHECK(counts.uring == 0);
  }
  injected.moved_error = injected.pread_error = EIO;
  ReadCounts counts;
  CHECK(read_whole(with, reader, data, counts).find("cannot be read at byte") != std::string::npos);
  CHECK(fake().held() == held);
}

TEST_CASE("reads that io_uring does not take are made without it, and one that cannot wait for them looks again") {
  const Application with;
  const auto data = random_bytes(3_MiB + 500, 70);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  injected.nothing_cached = true;
  for (const char* kind : {"io_uring_enter", "io_uring_register", "poll"})
    for (const u64 times : {u64{2}, ~u64{0}}) {
      const FailingSystem failing{kind, 1, times, EAGAIN};
      ReadCounts counts;
      CHECK(read_whole(with, reader, data, counts).empty());
      CHECK(counts.direct + counts.buffered == data.size());
      if (!has_uring(reader)) continue;
      CHECK((counts.uring < data.size()) == (std::string{kind} == "io_uring_enter"));
      CHECK(counts.uring > 0);
      if (times == 2) CHECK(counts.uring >= data.size() - 2 * small_chunks().slot_bytes);
    }
}

TEST_CASE("an error of the driver or a cancellation ends reads of io_uring, and leaks nothing") {
  const Application with;
  const auto data = random_bytes(3_MiB, 66);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  const u64 held = fake().held();
  injected.nothing_cached = true;
  for (const char* symbol : {"cuMemcpyHtoDAsync", "cuEventRecord"}) {
    const Failing failing{symbol, 2};
    ReadCounts counts;
    CHECK(read_whole(with, reader, data, counts).find("NOT_PERMITTED") != std::string::npos);
  }
  for (const u64 after : {u64{0}, 1_MiB}) {
    Transfers transfers{small_chunks()};
    ReadCounts counts;
    Progress progress;
    progress.cancelled = after == 0;
    progress.report = [&](u64 done) { progress.cancelled = progress.cancelled || done >= after; };
    CHECK_THROWS_AS(transfers.read(reader, {{{0, data.size(), with.on_gpu()}}}, with.stream->get(), counts, progress),
                    Cancelled);
    with.stream->synchronize();
  }
  ReadCounts counts;
  CHECK(read_whole(with, reader, data, counts).empty());
  CHECK(fake().held() == held);
}

TEST_CASE("a file that was cut after it was opened is an error that says so, with and without io_uring") {
  const Application with;
  const auto data = random_bytes(2_MiB, 67);
  for (const int refused : {0, EPERM}) {
    const TemporaryFile file{data};
    const FileReader reader{file.path.string()};
    injected.nothing_cached = true;
    injected.uring_error = refused;
    std::filesystem::resize_file(file.path, 1'000'000);
    ReadCounts counts;
    CHECK(read_whole(with, reader, data, counts).find("it is truncated") != std::string::npos);
  }
}
