#include "host/scratch_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace linkscope {
namespace {

std::string because(const std::string& what, int error) { return what + ": " + std::strerror(error); }

/// A file without a name. Some file systems, such as NFS, give it one for a moment.
Descriptor nameless(const std::string& directory) {
  Descriptor file{open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  if (file) return file;
  std::string name = directory + "/linkscope-XXXXXX";
  file = Descriptor{mkostemp(name.data(), O_CLOEXEC)};
  if (file) unlink(name.c_str());
  return file;
}

}  // namespace

std::string why_no_scratch_file(const std::string& directory, u64 bytes) {
  struct stat facts{};
  if (stat(directory.c_str(), &facts) != 0) return because(directory + " cannot be used", errno);
  if (!S_ISDIR(facts.st_mode)) return directory + " is no directory; files are measured in a directory";
  if (access(directory.c_str(), W_OK | X_OK) != 0) return because("no file can be made in " + directory, errno);
  struct statvfs disk{};
  if (statvfs(directory.c_str(), &disk) != 0) return because(directory + " cannot be used", errno);
  const u64 room = disk.f_bavail * disk.f_frsize;
  return room >= bytes ? ""
                       : "a file of " + bytes_text(bytes) + " does not fit in " + directory + ", which has room for " +
                             bytes_text(room);
}

ScratchFile::ScratchFile(const std::string& directory, u64 bytes) : file_{nameless(directory)}, bytes_{bytes} {
  if (!file_) throw Error{ErrorKind::failed, because("no file can be made in " + directory, errno)};
  // Reserved, because a store to a mapped page for which the disk has no room kills the process.
  if (const int error = posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes)); error != 0)
    throw Error{error == ENOSPC || error == EFBIG || error == EDQUOT ? ErrorKind::memory : ErrorKind::failed,
                because("a file of " + bytes_text(bytes) + " does not fit in " + directory, error)};
  const auto path = "/proc/self/fd/" + std::to_string(file_.get());
  direct_ = Descriptor{open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC)};
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapped == MAP_FAILED)
    throw Error{ErrorKind::failed, because("a file in " + directory + " cannot be mapped", errno)};
  data_ = static_cast<std::byte*>(mapped);
}

ScratchFile::~ScratchFile() {
  if (data_) munmap(data_, bytes_);
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : file_{std::move(other.file_)},
      direct_{std::move(other.direct_)},
      data_{std::exchange(other.data_, nullptr)},
      bytes_{std::exchange(other.bytes_, 0)} {}

ScratchFile& ScratchFile::operator=(ScratchFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(direct_, other.direct_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void ScratchFile::evict() const {
  // The kernel keeps pages that are mapped, and those that are not on the disk yet.
  if (madvise(data_, bytes_, MADV_DONTNEED) != 0)
    throw Error{ErrorKind::failed, because("a file cannot be unmapped", errno)};
  if (fdatasync(file_.get()) != 0)
    throw Error{ErrorKind::failed, because("a file cannot be written to its disk", errno)};
  if (const int error = posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED); error != 0)
    throw Error{ErrorKind::failed, because("a file cannot leave the page cache", error)};
}

void ScratchFile::touch(u64 bytes) const {
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE));
  for (u64 at = 0; at < std::min(bytes, bytes_); at += page) (void)static_cast<volatile std::byte*>(data_)[at];
}

double ScratchFile::cached_share(u64 bytes) const {
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  if (mincore(data_, bytes, pages.data()) != 0)
    throw Error{ErrorKind::failed, because("mincore does not say which pages are cached", errno)};
  const auto cached = std::count_if(pages.begin(), pages.end(), [](unsigned char state) { return state & 1; });
  return static_cast<double>(cached) / static_cast<double>(pages.size());
}

}  // namespace linkscope
