#include "host/file_writer.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.hpp"

namespace linkscope {
namespace {

namespace fs = std::filesystem;

/// The file that the name stands for: a link stays a link.
std::string target_of(const std::string& path) {
  std::error_code none;
  const auto target = fs::is_symlink(path, none) ? fs::canonical(path, none) : fs::path{path};
  return none ? path : target.string();
}

bool is_on_disk(const Descriptor& file) {
  while (fsync(file.get()) != 0)
    if (errno != EINTR) return false;
  return true;
}

}  // namespace

FileWriter::FileWriter(const std::string& path, u64 bytes) : path_{target_of(path)}, size_{bytes} {
  static std::atomic<u64> made{0};
  struct stat old{};
  const bool exists = stat(path_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT)
    throw Error{ErrorKind::usage, path_ + " cannot be looked up: " + std::strerror(errno)};
  if (exists && !S_ISREG(old.st_mode)) throw Error{ErrorKind::usage, path_ + " is no regular file"};
  if (exists && access(path_.c_str(), W_OK) != 0)
    throw Error{ErrorKind::usage, path_ + " cannot be replaced: " + std::strerror(errno)};
  temporary_ = path_ + ".part-" + std::to_string(getpid()) + "-" + std::to_string(made++);
  file_ = Descriptor{open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (!file_) {
    const int error = errno;
    temporary_.clear();
    throw Error{ErrorKind::usage, path_ + " cannot be made: " + std::strerror(error)};
  }
  try {
    reserve();
  } catch (const Error& error) {
    throw Error{error.kind(), error.what() + discard()};
  }
  // A file system that keeps no modes refuses; the data matters more.
  if (exists && fchmod(file_.get(), old.st_mode & 07777) != 0) errno = 0;
  struct statfs system{};
  is_in_memory_ = fstatfs(file_.get(), &system) == 0 && system.f_type == TMPFS_MAGIC;
  direct_ = Descriptor{open(temporary_.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT)};
}

FileWriter::~FileWriter() { (void)discard(); }

std::string FileWriter::discard() {
  if (temporary_.empty()) return "";
  const auto name = std::exchange(temporary_, "");
  while (unlink(name.c_str()) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOENT) break;
    return "; " + name + " stays, because it cannot be removed: " + std::strerror(errno);
  }
  return "";
}

void FileWriter::fail(const char* what, int error) const {
  throw Error{ErrorKind::failed, path_ + " " + what + ": " + std::strerror(error)};
}

/// A disk that is too full fails here, before any data moves. Writes into reserved space may also run side by side.
void FileWriter::reserve() const {
  if (size_ == 0 || fallocate(file_.get(), 0, 0, static_cast<off_t>(size_)) == 0) return;
  // The file grows as it is written, also after a signal: tmpfs then gives all space back.
  if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == EINTR) return;
  fail(("has no room for " + bytes_text(size_)).c_str(), errno);
}

/// The bytes that were written: fewer if the file system refuses, and then write_buffered() says why.
u64 FileWriter::write_direct(const std::byte* from, u64 offset, u64 bytes) const {
  u64 done = 0;
  while (done < bytes) {
    const ssize_t put = pwrite(direct_.get(), from + done, bytes - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    done += static_cast<u64>(put);
    if (done % file_granule != 0) break;
  }
  return done;
}

void FileWriter::write_buffered(const std::byte* from, u64 offset, u64 bytes, WriteCounts& counts) const {
  for (u64 done = 0; done < bytes;) {
    const ssize_t put = pwrite(file_.get(), from + done, bytes - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail(("cannot be written at byte " + std::to_string(offset + done)).c_str(), put < 0 ? errno : EIO);
    done += static_cast<u64>(put);
  }
  counts.buffered += bytes;
}

void FileWriter::write(const std::byte* from, u64 offset, u64 bytes, WriteCounts& counts) const {
  const u64 into = offset % file_granule, head = std::min(bytes, into ? file_granule - into : 0);
  const u64 whole = (bytes - head) / file_granule * file_granule;
  const bool alike = reinterpret_cast<u64>(from) % file_granule == into;
  if (!direct_ || !alike || whole == 0) return write_buffered(from, offset, bytes, counts);
  const u64 done = head + write_direct(from + head, offset + head, whole);
  counts.direct += done - head;
  if (head) write_buffered(from, offset, head, counts);
  if (done < bytes) write_buffered(from + done, offset + done, bytes - done, counts);
}

void FileWriter::commit(bool durable) {
  if (durable && !is_on_disk(file_)) fail("cannot be written to its disk", errno);
  // A file system of a network may report here what it could not write.
  if (file_.close_now() != 0) fail("cannot be closed", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot get its name", errno);
  temporary_.clear();
  is_in_place_ = true;
  if (!durable) return;
  const auto folder = fs::path{path_}.parent_path();
  const Descriptor names{open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!names || !is_on_disk(names)) fail("is complete, but its directory cannot be written to its disk", errno);
}

}  // namespace linkscope
