// Files that go to a GPU or to host memory: exact pieces, and errors of the system's calls.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "host/file_reader.hpp"
#include "host/uring.hpp"
#include "system_calls.hpp"
#include "transfer_testing.hpp"

using namespace linkscope;

namespace {

/// What the system's calls for reading do in place of reading.
struct Injected {
  std::atomic<int> pread_error{0}, nowait_error{0}, uring_error{0};
  std::atomic<bool> nothing_cached{false};
  std::atomic<std::int64_t> moved{-1};  // by each read of io_uring, if not below 0; -errno ends it with an error
  std::atomic<std::int64_t> moved_error{0};
  std::atomic<u64> pread_after{0}, most{~u64{0}};
  std::atomic<u64> preads{0};
  std::atomic<u32> in_flight{0};  // the most reads of io_uring at once
} injected;

struct TemporaryFile {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("linkscope-" + std::to_string(getpid()));
  explicit TemporaryFile(const Bytes& data) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    REQUIRE_MESSAGE(std::fwrite(data.data(), 1, data.size(), file) == data.size(), path.string());
    std::fclose(file);
  }
  ~TemporaryFile() {
    std::filesystem::remove(path);
    injected.pread_error = injected.nowait_error = injected.uring_error = 0;
    injected.nothing_cached = false;
    injected.moved = -1, injected.moved_error = 0;
    injected.pread_after = injected.preads = 0;
    injected.in_flight = 0;
    injected.most = ~u64{0};
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

/// Pieces of random sizes and distances in the order of the file, placed with gaps.
std::vector<FilePiece> random_pieces(u64 file_bytes, std::byte* dst, u64 longest, u64 seed) {
  std::mt19937_64 random{seed};
  std::vector<FilePiece> pieces;
  u64 place = 0;
  for (u64 at = 0;; at += pieces.back().bytes + random() % 9000) {
    const u64 bytes = random() % longest;
    if (at + bytes > file_bytes) return pieces;
    place += random() % 64;
    pieces.push_back({at, bytes, dst + place});
    place += bytes;
  }
}

/// Whether the kernel and the file system have what cold files are read by.
bool has_uring(const FileReader& file) {
  int refused = 0;
  return Uring::open(1, refused) && file.direct() >= 0;
}

/// Reads a whole file to the GPU, checks the data and returns the counts by `counts`, and the first error.
std::string read_whole(const Application& with, const FileReader& file, const Bytes& data, ReadCounts& counts) {
  Transfers transfers{small_chunks()};
  Progress progress;
  std::memset(with.on_gpu(), 0, data.size());
  return error_of([&] {
    transfers.read(file, {{{0, data.size(), with.on_gpu()}}}, with.stream->get(), counts, progress);
    with.stream->synchronize();
    CHECK(same(with.on_gpu(), data.data(), data.size()));
    CHECK(progress.done == data.size());
  });
}

u64 cached_pages(const std::filesystem::path& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  const u64 bytes = std::filesystem::file_size(path);
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  REQUIRE(mincore(mapped, bytes, pages.data()) == 0);
  munmap(mapped, bytes);
  return static_cast<u64>(std::count_if(pages.begin(), pages.end(), [](unsigned char state) { return state & 1; }));
}

/// Writes the file to its disk, and removes it from the page cache.
void evict(const std::filesystem::path& path) {
  const Descriptor file{open(path.c_str(), O_RDWR | O_CLOEXEC)};
  REQUIRE(fdatasync(file.get()) == 0);
  REQUIRE(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
}

bool arrived(const std::vector<FilePiece>& pieces, const Bytes& data) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const FilePiece& piece) { return same(piece.dst, data.data() + piece.offset, piece.bytes); });
}

/// Reads random pieces to the GPU and to the host, and returns the first error.
std::string read_all(const Application& with, const FileReader& file, const Bytes& data, u64 longest) {
  Transfers transfers{small_chunks()};
  Bytes host(2 * data.size());
  return error_of([&] {
    ReadCounts counts;
    for (auto* dst : {with.on_gpu(), host.data()}) {
      Progress progress;
      const auto pieces = random_pieces(data.size(), dst, longest, longest);
      transfers.read(file, pieces, with.stream->get(), counts, progress);
      with.stream->synchronize();
      CHECK(arrived(pieces, data));
    }
  });
}

}  // namespace

void linkscope::pretend_nothing_cached(bool nothing) { injected.nothing_cached = nothing; }

void linkscope::pretend_uring_moved(std::int64_t moved, int error) {
  injected.moved = moved;
  injected.moved_error = error;
}

void linkscope::uring_tells_the_truth() {
  pretend_uring_moved(-1);
  injected.in_flight = 0;
}

u32 linkscope::most_in_flight() { return injected.in_flight; }

extern "C" {
ssize_t __real_pread(int, void*, size_t, off_t);
ssize_t __wrap_pread(int file, void* to, size_t bytes, off_t offset) {
  if (system_call_fails("pread")) return -1;
  if (injected.pread_error && injected.preads++ >= injected.pread_after) {
    errno = injected.pread_error;
    return -1;
  }
  return __real_pread(file, to, std::min<size_t>(bytes, injected.most), offset);
}
ssize_t __real_preadv2(int, const iovec*, int, off_t, int);
ssize_t __wrap_preadv2(int file, const iovec* parts, int count, off_t offset, int flags) {
  if (system_call_fails("preadv2")) return -1;
  if (!injected.nowait_error) return __real_preadv2(file, parts, count, offset, flags);
  errno = injected.nowait_error;
  return -1;
}
int __real_mincore(void*, size_t, unsigned char*);
int __wrap_mincore(void* start, size_t bytes, unsigned char* pages) {
  if (system_call_fails("mincore")) return -1;
  if (!injected.nothing_cached) return __real_mincore(start, bytes, pages);
  std::memset(pages, 0, (bytes + 4095) / 4096);
  return 0;
}
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  long arguments[6];
  va_list rest;
  va_start(rest, number);
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  for (const auto& [ring_call, name] : {std::pair{__NR_io_uring_setup, "io_uring_setup"},
                                        {__NR_io_uring_enter, "io_uring_enter"},
                                        {__NR_io_uring_register, "io_uring_register"}})
    if (number == ring_call && system_call_fails(name)) return -1;
  if (number == __NR_io_uring_setup && injected.uring_error) {
    errno = injected.uring_error;
    return -1;
  }
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
// linkscope::Uring::wait(Seconds)
using Ended = std::optional<Uring::Done>;
Ended __real__ZN9linkscope5Uring4waitENSt6chrono8durationIdSt5ratioILl1ELl1EEEE(Uring*, Seconds);
Ended __wrap__ZN9linkscope5Uring4waitENSt6chrono8durationIdSt5ratioILl1ELl1EEEE(Uring* ring, Seconds patience) {
  injected.in_flight = std::max<u32>(injected.in_flight, ring->in_flight());
  auto done = __real__ZN9linkscope5Uring4waitENSt6chrono8durationIdSt5ratioILl1ELl1EEEE(ring, patience);
  if (done && injected.moved >= 0) done->moved = std::min<std::int64_t>(done->moved, injected.moved);
  if (done && injected.moved_error) done->moved = -injected.moved_error;
  return done;
}
}

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
  const TemporaryFile file{data};
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
    progress.report = [&](u64 done) { progress.cancelled = done >= after; };
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

TEST_CASE("reading a cold file leaves it out of the page cache, and a cached file is read from there") {
  const Application with;
  const auto data = random_bytes(4_MiB + 10, 68);
  const TemporaryFile file{data};
  const FileReader reader{file.path.string()};
  ReadCounts warm;
  CHECK(read_whole(with, reader, data, warm).empty());
  CHECK(warm.cached == data.size());
  evict(file.path);
  if (reader.direct() < 0 || cached_pages(file.path) > 0) return;  // a file system in memory
  ReadCounts cold;
  CHECK(read_whole(with, reader, data, cold).empty());
  CHECK(cold.direct == data.size());
  CHECK(cached_pages(file.path) == 0);
  // One part is brought back: it alone comes from the cache.
  Bytes part(1_MiB);
  const Descriptor again{open(file.path.c_str(), O_RDONLY | O_CLOEXEC)};
  REQUIRE(posix_fadvise(again.get(), 0, 0, POSIX_FADV_RANDOM) == 0);
  REQUIRE(pread(again.get(), part.data(), part.size(), 1_MiB) == static_cast<ssize_t>(part.size()));
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
  for (std::byte* second : {elsewhere.at(), host.data()})
    CHECK(refused({{0, 8, with.on_gpu()}, {8, 8, second}}).find("call it once for each GPU") != std::string::npos);
  void* read_only = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(refused({{0, 8, read_only}}).find("none that this process can write") != std::string::npos);
  munmap(read_only, 4096);
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
