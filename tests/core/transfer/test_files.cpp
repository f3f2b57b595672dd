// Files that go to a GPU or to host memory: exact pieces, and errors of the system's calls.
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "host/file_reader.hpp"
#include "transfer_testing.hpp"

using namespace linkscope;

namespace {

/// What the system's calls for reading do in place of reading.
struct Injected {
  std::atomic<int> pread_error{0}, nowait_error{0};
  std::atomic<u64> pread_after{0}, most{~u64{0}};
  std::atomic<u64> preads{0};
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
    injected.pread_error = injected.nowait_error = 0;
    injected.pread_after = injected.preads = 0;
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

bool arrived(const std::vector<FilePiece>& pieces, const Bytes& data) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const FilePiece& piece) { return same(piece.dst, data.data() + piece.offset, piece.bytes); });
}

/// Reads random pieces to the GPU and to the host, and returns the first error.
std::string read_all(const Application& with, const FileReader& file, const Bytes& data, u64 longest) {
  Transfers transfers{small_chunks()};
  Bytes host(2 * data.size());
  ReadCounts counts;
  return error_of([&] {
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

extern "C" {
ssize_t __real_pread(int, void*, size_t, off_t);
ssize_t __wrap_pread(int file, void* to, size_t bytes, off_t offset) {
  if (injected.pread_error && injected.preads++ >= injected.pread_after) {
    errno = injected.pread_error;
    return -1;
  }
  return __real_pread(file, to, std::min<size_t>(bytes, injected.most), offset);
}
ssize_t __real_preadv2(int, const iovec*, int, off_t, int);
ssize_t __wrap_preadv2(int file, const iovec* parts, int count, off_t offset, int flags) {
  if (!injected.nowait_error) return __real_preadv2(file, parts, count, offset, flags);
  errno = injected.nowait_error;
  return -1;
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

TEST_CASE("files that cannot be read are refused with the reason") {
  CHECK(error_of([] { FileReader{"/nonexistent"}; }).find("No such file") != std::string::npos);
  CHECK(error_of([] { FileReader{"/tmp"}; }).find("no regular file") != std::string::npos);
}
