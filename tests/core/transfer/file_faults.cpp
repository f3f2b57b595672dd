// The linker leads the library's calls for reading here (--wrap).
#include "file_faults.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "host/uring.hpp"
#include "system_calls.hpp"

namespace linkscope {

FileFaults injected;

Resident::Resident(const std::filesystem::path& path, u64 offset, u64 bytes)
    : bytes_{bytes ? bytes : std::filesystem::file_size(path)} {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  start_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.get(), static_cast<off_t>(offset));
  REQUIRE(start_ != MAP_FAILED);
  REQUIRE(madvise(start_, bytes_, MADV_RANDOM) == 0);  // no page beside the part is read
  const auto* pages = static_cast<const volatile std::byte*>(start_);
  for (u64 at = 0; at < bytes_; at += 4096) (void)pages[at];
  (void)mlock(start_, bytes_);  // as far as this process may: mapped pages go last
}

Resident::~Resident() { munmap(start_, bytes_); }

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

bool has_uring(const FileReader& file) {
  int refused = 0;
  return Uring::open(1, refused) && file.direct() >= 0;
}

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

void evict(const std::filesystem::path& path) {
  const Descriptor file{open(path.c_str(), O_RDWR | O_CLOEXEC)};
  REQUIRE(fdatasync(file.get()) == 0);
  REQUIRE(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
}

bool arrived(const std::vector<FilePiece>& pieces, const Bytes& data) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const FilePiece& piece) { return same(piece.dst, data.data() + piece.offset, piece.bytes); });
}

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

void pretend_nothing_cached(bool nothing) { injected.nothing_cached = nothing; }

void pretend_uring_moved(std::int64_t moved, int error) {
  injected.moved = moved;
  injected.moved_error = error;
}

void uring_tells_the_truth() {
  pretend_uring_moved(-1);
  injected.in_flight = 0;
}

u32 most_in_flight() { return injected.in_flight; }

}  // namespace linkscope

using namespace linkscope;

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
