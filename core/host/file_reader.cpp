#include "host/file_reader.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.hpp"

namespace linkscope {

FileReader::FileReader(std::string path) : path_{std::move(path)}, file_{open(path_.c_str(), O_RDONLY | O_CLOEXEC)} {
  struct stat facts{};
  if (!file_ || fstat(file_.get(), &facts) != 0)
    throw Error{ErrorKind::usage, path_ + " cannot be opened: " + std::strerror(errno)};
  if (!S_ISREG(facts.st_mode)) throw Error{ErrorKind::usage, path_ + " is no regular file"};
  size_ = static_cast<u64>(facts.st_size);
  direct_ = Descriptor{open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)};
  struct statfs system{};
  // All files of tmpfs are in memory, or swapped: its pages need not be asked for.
  const bool in_memory = fstatfs(file_.get(), &system) == 0 && system.f_type == TMPFS_MAGIC;
  void* mapped = size_ && !in_memory ? mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_.get(), 0) : MAP_FAILED;
  if (mapped != MAP_FAILED) mapped_ = static_cast<std::byte*>(mapped);
}

FileReader::~FileReader() {
  if (mapped_) munmap(mapped_, size_);
}

bool FileReader::is_cached(u64 offset, u64 bytes) const {
  const u64 page = static_cast<u64>(sysconf(_SC_PAGESIZE)), first = offset / page * page;
  const u64 end = std::min(offset + bytes, size_);
  if (!mapped_ || first >= end) return true;
  std::vector<unsigned char> pages((end - first + page - 1) / page);
  if (mincore(mapped_ + first, end - first, pages.data()) != 0) return true;
  return std::all_of(pages.begin(), pages.end(), [](unsigned char state) { return state & 1; });
}

/// The bytes that the page cache has at the start of the range; none if the file system does not say, as tmpfs.
std::optional<u64> FileReader::read_cached(std::byte* to, u64 offset, u64 bytes) const {
  const iovec part{to, bytes};
  const ssize_t got = preadv2(file_.get(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (got < 0 && errno != EAGAIN) return {};
  return got > 0 ? static_cast<u64>(got) : 0;
}

bool FileReader::can_be_read_now(u64 offset, u64 bytes) const {
  constexpr u64 step = u64{1} << 20;
  const auto is_there = [&](u64 at) {
    std::byte one{};
    const auto got = read_cached(&one, at, 1);
    return !got || *got == 1;
  };
  for (u64 at = 0; at < bytes; at += step)
    if (!is_there(offset + at)) return false;
  return bytes == 0 || is_there(offset + bytes - 1);
}

/// False if the file system refuses such reads, or if the file ends first: then read() says so.
bool FileReader::read_direct(std::byte* to, u64 offset, u64 bytes) const {
  const u64 whole = (bytes + file_granule - 1) / file_granule * file_granule;
  for (u64 done = 0; direct_ && done < bytes;) {
    const ssize_t got = pread(direct_.get(), to + done, whole - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<u64>(got);
    if (done < bytes && done % file_granule != 0) return false;
  }
  return static_cast<bool>(direct_);
}

void FileReader::refuse_end(u64 end, u64 needed) const {
  throw Error{ErrorKind::usage, path_ + " ends at byte " + std::to_string(end) + ", and " + std::to_string(needed) +
                                    " bytes are needed; it is truncated"};
}

void FileReader::require(u64 end) const {
  struct stat facts{};
  if (fstat(file_.get(), &facts) != 0)
    throw Error{ErrorKind::failed, path_ + " does not tell its size: " + std::strerror(errno)};
  if (const auto size = static_cast<u64>(facts.st_size); size < end) refuse_end(size, end);
}

void FileReader::read(std::byte* to, u64 offset, u64 bytes, ReadCounts& counts) const {
  for (u64 done = 0; done < bytes;) {
    const ssize_t got = pread(file_.get(), to + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw Error{ErrorKind::failed,
                  path_ + " cannot be read at byte " + std::to_string(offset + done) + ": " + std::strerror(errno)};
    if (got == 0) refuse_end(offset + done, offset + bytes);
    done += static_cast<u64>(got);
  }
  counts.buffered += bytes;
}

void FileReader::read_aligned(std::byte* to, u64 offset, u64 bytes, ReadCounts& counts) const {
  const auto cached = read_cached(to, offset, bytes);
  if (!cached) return read(to, offset, bytes, counts);
  if (*cached == bytes) {
    counts.cached += bytes;
    return;
  }
  // A range that is partly in the cache is read again from its last whole granule.
  const u64 kept = *cached / file_granule * file_granule;
  counts.cached += kept;
  read_cold(to + kept, offset + kept, bytes - kept, counts);
}

void FileReader::read_cold(std::byte* to, u64 offset, u64 bytes, ReadCounts& counts) const {
  if (read_direct(to, offset, bytes)) counts.direct += bytes;
  else read(to, offset, bytes, counts);
}

}  // namespace linkscope
