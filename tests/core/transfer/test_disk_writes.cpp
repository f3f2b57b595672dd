// Memory of a GPU that io_uring writes past the page cache: exact data, and errors of every call.
#include <fcntl.h>

#include <cerrno>

#include "host/uring.hpp"
#include "saves_testing.hpp"
#include "system_calls.hpp"

using namespace linkscope;

namespace {

constexpr u32 in_flight = 4;

/// Whether the kernel and the file system of the folder have what such saves need.
bool has_uring(const SavesFolder& folder) {
  int refused = 0;
  const Descriptor file{open((folder.path / "try").c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0600)};
  std::filesystem::remove(folder.path / "try");
  return file && Uring::open(1, refused);
}

struct Saving {
  const Application with;
  const SavesFolder folder;
  const Bytes data = random_bytes(4_MiB + 500, 190);  // 17 chunks of 256 KiB
  WriteCounts counts;

  ~Saving() { uring_tells_the_truth(); }
  /// Saves the data and returns the error; without one, the file is checked.
  std::string go(const std::vector<u64>& sizes = {4_MiB + 500}, bool mixed = false) {
    for (auto* count : {&counts.direct, &counts.buffered, &counts.cufile, &counts.uring}) *count = 0;
    counts.uring_refused = 0;
    auto error = save(with, data, sizes, folder.file(), {in_flight, mixed}, counts);
    if (!error.empty()) return error;
    CHECK(content_of(folder.file()) == data);
    CHECK(counts.direct + counts.buffered == data.size());
    CHECK(folder.count() == 1);
    return error;
  }
};

}  // namespace

TEST_CASE("io_uring writes whole granules with as many writes in flight as the class says, and threads its ends") {
  Saving saving;
  uring_tells_the_truth();
  CHECK(saving.go() == "");
  if (!has_uring(saving.folder)) return;
  CHECK(saving.counts.uring == 4_MiB);
  CHECK(saving.counts.direct == saving.counts.uring);
  CHECK(saving.counts.uring_refused == 0);
  CHECK(most_in_flight() > 1);
  CHECK(most_in_flight() <= in_flight);
  // A GPU's part between parts of the host, at odd offsets.
  CHECK(saving.go({77, 1_MiB, 300'001, 2_MiB, 5, 4_MiB + 500 - 77 - 1_MiB - 300'001 - 2_MiB - 5}, true) == "");
  CHECK(saving.counts.uring >= 4_MiB - 4096);
}

TEST_CASE("io_uring writes what the work that is on the stream before leaves") {
  const Application with;
  const SavesFolder folder;
  Transfers transfers{small_chunks()};
  LINKSCOPE_CU(the_driver(), cuMemsetD8Async, with.memory.address(), 1, 2_MiB, with.stream->get());
  LINKSCOPE_CU(the_driver(), cuMemsetD8Async, with.memory.address(), 2, 2_MiB, with.stream->get());
  WriteCounts counts;
  Progress progress;
  transfers.save(folder.file(), {{{with.on_gpu(), 2_MiB, with.stream->get()}}}, false, counts, progress);
  LINKSCOPE_CU(the_driver(), cuMemsetD8Async, with.memory.address(), 3, 2_MiB, with.stream->get());
  CHECK(content_of(folder.file()) == Bytes(2_MiB, std::byte{2}));
}

TEST_CASE("where the kernel refuses io_uring or the file system O_DIRECT, threads write and it is said") {
  Saving saving;
  const bool can = has_uring(saving.folder);
  for (const int refused : {EPERM, ENOSYS}) {
    const FailingSystem failing{"io_uring_setup", 0, ~u64{0}, refused};
    CHECK(saving.go() == "");
    CHECK(saving.counts.uring == 0);
    if (can) CHECK(saving.counts.uring_refused == refused);
  }
  const FailingSystem failing{"open O_DIRECT", 0, ~u64{0}, EINVAL};
  CHECK(saving.go() == "");
  CHECK(saving.counts.direct == 0);
  CHECK(saving.counts.uring_refused == 0);
}

TEST_CASE("threads write a file in memory, which has no disk") {
  if (!std::filesystem::exists("/dev/shm")) return;
  const Application with;
  const SavesFolder folder{"/dev/shm"};
  const auto data = random_bytes(2_MiB, 191);
  WriteCounts counts;
  CHECK(save(with, data, {data.size()}, folder.file(), {in_flight}, counts) == "");
  CHECK(content_of(folder.file()) == data);
  CHECK(counts.uring == 0);
}

TEST_CASE("writes of io_uring that fail or are short are made again, and a full disk is reported") {
  Saving saving;
  for (const std::int64_t moved : {0, 100, 4096, 100'000}) {
    pretend_uring_moved(moved);
    CHECK(saving.go() == "");
  }
  for (const int error : {EINVAL, EFAULT, EINTR, ENOSPC}) {
    pretend_uring_moved(-1, error);
    CHECK(saving.go() == "");
    CHECK(saving.counts.uring == 0);
  }
  const u64 held = fake().held();
  for (const u64 after : {0, 5}) {
    const FailingSystem full{"pwrite", after, ~u64{0}, ENOSPC};
    pretend_uring_moved(-1, ENOSPC);
    const auto error = saving.go();
    CHECK_MESSAGE(error.find("cannot be written at byte") != std::string::npos, error);
    CHECK_MESSAGE(error.find("No space left on device") != std::string::npos, error);
    CHECK(content_of(saving.folder.file()) == saving.data);  // that of the saving before
    CHECK(saving.folder.count() == 1);
  }
  CHECK(fake().held() == held);
}

TEST_CASE("writes that io_uring does not take are made without it, and one that cannot wait for them looks again") {
  Saving saving;
  const bool can = has_uring(saving.folder);
  for (const char* kind : {"io_uring_enter", "io_uring_register", "poll"})
    for (const u64 times : {u64{2}, ~u64{0}}) {
      const FailingSystem failing{kind, 1, times, EAGAIN};
      CHECK(saving.go() == "");
      if (!can) continue;
      CHECK((saving.counts.uring < 4_MiB) == (std::string{kind} == "io_uring_enter"));
      CHECK(saving.counts.uring > 0);
    }
}

TEST_CASE(
    "an error of the driver or a cancellation ends writes of io_uring, leaves the file as it was and leaks nothing") {
  Saving saving;
  REQUIRE(saving.go() == "");
  const u64 held = fake().held();
  for (const char* symbol : {"cuMemcpyDtoHAsync", "cuEventRecord", "cuEventQuery"}) {
    const Failing failing{symbol, 2};
    CHECK(saving.go().find("NOT_PERMITTED") != std::string::npos);
    CHECK(content_of(saving.folder.file()) == saving.data);
  }
  for (const u64 after : {u64{0}, 1_MiB}) {
    Transfers transfers{small_chunks()};
    Progress progress;
    progress.cancelled = after == 0;
    progress.report = [&](u64 done) { progress.cancelled = progress.cancelled || done >= after; };
    const auto error = error_of([&] {
      transfers.save(saving.folder.file(), {{{saving.with.on_gpu(), 4_MiB, saving.with.stream->get()}}}, false,
                     saving.counts, progress);
    });
    CHECK(error == "the saving was cancelled; the file is as it was before");
    CHECK(content_of(saving.folder.file()) == saving.data);
  }
  CHECK(saving.folder.count() == 1);
  CHECK(saving.go() == "");
  CHECK(fake().held() == held);
}
