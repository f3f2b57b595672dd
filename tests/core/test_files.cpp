// Bulk files: what is read is what was written, by both engines, past the page cache and through it.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "doctest.h"
#include "host/file_queue.hpp"
#include "host/files.hpp"

using namespace linkscope;

namespace {

/// A file that is removed at the end. Its folder is that of the test's executable, which is on a disk.
struct Scratch {
  std::string path = "linkscope-files-XXXXXX";
  Scratch() {
    const int made = mkstemp(path.data());
    REQUIRE(made >= 0);
    close(made);
  }
  ~Scratch() { unlink(path.c_str()); }
};

struct Aligned {
  explicit Aligned(u64 bytes) : bytes{bytes} { REQUIRE(posix_memalign(&start, 4096, bytes) == 0); }
  ~Aligned() { free(start); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(start); }
  [[nodiscard]] std::span<std::byte> span() const { return {data(), bytes}; }
  u64 bytes;
  void* start = nullptr;
};

void fill(const Aligned& memory, u64 seed) {
  std::mt19937_64 random{seed};
  for (u64 at = 0; at + 8 <= memory.bytes; at += 8) {
    const u64 word = random();
    std::memcpy(memory.data() + at, &word, 8);
  }
}

/// All of a file in requests of `each` bytes, as many in flight as the queue allows.
void move_all(FileQueue& queue, const BulkFile& file, const Aligned& memory, u64 each, bool write) {
  u64 next = 0;
  while (next < memory.bytes || queue.in_flight() > 0) {
    while (next < memory.bytes && queue.in_flight() < queue.depth()) {
      const u64 bytes = std::min(each, memory.bytes - next);
      queue.start({&file, memory.data() + next, bytes, next, write, next});
      next += bytes;
    }
    (void)queue.wait(Seconds{20});
  }
}

constexpr u64 bytes = (8 << 20) + 3 * 4096;

}  // namespace

TEST_CASE("a file has the bytes that were written, by every engine, with and without the page cache") {
  for (const auto engine : {FileEngine::io_uring, FileEngine::threads})
    for (const auto cache : {BulkFile::Cache::used, BulkFile::Cache::bypassed})
      for (const bool registered : {false, true}) {
        const Scratch scratch;
        const Aligned out{bytes}, in{bytes};
        fill(out, 7);
        const std::span<std::byte> buffers[] = {out.span(), in.span()};
        FileQueue queue{5, engine, registered ? std::span{buffers} : std::span<const std::span<std::byte>>{}};
        CHECK((queue.engine() == engine || !queue.why_no_uring().empty()));
        {
          const BulkFile file{scratch.path, BulkFile::Use::write, cache};
          move_all(queue, file, out, 1 << 20, true);
        }
        const BulkFile file{scratch.path, BulkFile::Use::read, cache};
        CHECK(file.bytes() == bytes);
        move_all(queue, file, in, 192 << 10, false);
        CHECK(std::equal(out.data(), out.data() + bytes, in.data()));
      }
}

TEST_CASE("an evicted file is not in the page cache, and reading it brings it back") {
  const Scratch scratch;
  const Aligned memory{bytes};
  FileQueue queue{4, FileEngine::threads};
  const BulkFile file{scratch.path, BulkFile::Use::write, BulkFile::Cache::used};
  move_all(queue, file, memory, 1 << 20, true);
  CHECK(cached_share(file) == 1);
  evict(file);
  CHECK(cached_share(file) < 0.05);
  move_all(queue, file, memory, 1 << 20, false);
  CHECK(cached_share(file) == 1);
}

TEST_CASE("direct reads leave the page cache empty") {
  const Scratch scratch;
  const Aligned memory{bytes};
  FileQueue queue{4};
  const BulkFile written{scratch.path, BulkFile::Use::write, BulkFile::Cache::bypassed};
  if (!written.direct()) {
    MESSAGE("not tested: ", written.why_not_direct());
    return;
  }
  move_all(queue, written, memory, 1 << 20, true);
  move_all(queue, BulkFile{scratch.path, BulkFile::Use::read, BulkFile::Cache::bypassed}, memory, 1 << 20, false);
  CHECK(cached_share(written) < 0.05);
}

TEST_CASE("a request beyond the end of a file names the file and its length") {
  const Scratch scratch;
  std::ofstream{scratch.path} << "short";
  const Aligned memory{4096};
  for (const auto engine : {FileEngine::io_uring, FileEngine::threads}) {
    const BulkFile file{scratch.path, BulkFile::Use::read, BulkFile::Cache::used};
    FileQueue queue{2, engine};
    queue.start({&file, memory.data(), 64, 0, false, 1});
    CHECK_THROWS_WITH_AS((void)queue.wait(Seconds{20}), doctest::Contains("ends at byte 5, and bytes up to 64"), Error);
    queue.start({&file, memory.data(), 5, 0, false, 2});
    CHECK(queue.wait(Seconds{20}) == 2);
  }
}

TEST_CASE("a queue refuses what cannot work, and says why") {
  const Scratch scratch;
  const Aligned memory{8192};
  CHECK_THROWS_AS(FileQueue{0}, Error);
  CHECK_THROWS_WITH_AS((BulkFile{"/nowhere/file", BulkFile::Use::read, BulkFile::Cache::bypassed}),
                       doctest::Contains("/nowhere/file: it cannot be opened"), Error);
  CHECK_THROWS_WITH_AS((BulkFile{"/", BulkFile::Use::read, BulkFile::Cache::used}),
                       doctest::Contains("not a regular file"), Error);
  const BulkFile file{scratch.path, BulkFile::Use::write, BulkFile::Cache::bypassed};
  FileQueue queue{1};
  CHECK_THROWS_WITH_AS((void)queue.wait(Seconds{1}), doctest::Contains("no request is in flight"), Error);
  if (file.direct())
    CHECK_THROWS_WITH_AS(queue.start({&file, memory.data() + 1, 4096, 0, true, 0}),
                         doctest::Contains("in multiples of"), Error);
  queue.start({&file, memory.data(), 8192, 0, true, 0});
  CHECK_THROWS_WITH_AS(queue.start({&file, memory.data(), 8192, 0, true, 0}), doctest::Contains("depth of the queue"),
                       Error);
  (void)queue.wait(Seconds{20});
  CHECK(file.bytes() == 8192);
  file.resize(100);
  CHECK(file.bytes() == 100);
}

TEST_CASE("a write to a file that was opened for reading is an error of that file") {
  const Scratch scratch;
  const Aligned memory{4096};
  for (const auto engine : {FileEngine::io_uring, FileEngine::threads}) {
    const BulkFile file{scratch.path, BulkFile::Use::read, BulkFile::Cache::used};
    FileQueue queue{1, engine};
    queue.start({&file, memory.data(), 4096, 0, true, 0});
    CHECK_THROWS_WITH_AS((void)queue.wait(Seconds{20}), doctest::Contains("it cannot be written"), Error);
    CHECK(queue.in_flight() == 0);
  }
}
