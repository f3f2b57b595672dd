#include "host/files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr u64 most_direct_granule = 4096;  // logical blocks of today's disks have 512 or 4096 B

/// The multiple that direct requests need: stated by the kernel since Linux 6.1, otherwise that of the largest blocks.
u64 granule_of(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx found{};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 && (found.stx_mask & STATX_DIOALIGN) &&
      found.stx_dio_offset_align != 0)
    return std::max<u64>({found.stx_dio_offset_align, found.stx_dio_mem_align, 512});
#else
  (void)descriptor;
#endif
  return most_direct_granule;
}

int flags_of(BulkFile::Use use) {
  return O_CLOEXEC | (use == BulkFile::Use::read ? O_RDONLY : O_RDWR | O_CREAT | O_TRUNC);
}

}  // namespace

void file_failed(const std::string& path, const char* what, int error) {
  throw Error{ErrorKind::failed, path + ": " + what + ": " + std::strerror(error)};
}

BulkFile::BulkFile(const std::string& path, Use use, Cache cache) : path_{path} {
  const auto opened = [&](int more) { return Descriptor{open(path.c_str(), flags_of(use) | more, 0666)}; };
  if (cache == Cache::bypassed) {
    descriptor_ = opened(O_DIRECT);
    direct_ = static_cast<bool>(descriptor_);
    // EINVAL: the file system has no O_DIRECT. Any other error is that of the file itself.
    if (!direct_ && errno != EINVAL) file_failed(path, "it cannot be opened", errno);
    if (!direct_) why_not_direct_ = "its file system has no O_DIRECT";
  }
  if (!direct_) descriptor_ = opened(0);
  if (!descriptor_) file_failed(path, "it cannot be opened", errno);
  struct stat found{};
  if (fstat(get(), &found) != 0) file_failed(path, "it has no state", errno);
  if (!S_ISREG(found.st_mode)) throw Error{ErrorKind::failed, path + ": it is not a regular file"};
  if (direct_) granule_ = granule_of(get());
}

u64 BulkFile::bytes() const {
  struct stat found{};
  if (fstat(get(), &found) != 0) file_failed(path_, "it has no state", errno);
  return static_cast<u64>(found.st_size);
}

void BulkFile::resize(u64 bytes) const {
  if (ftruncate(get(), static_cast<off_t>(bytes)) != 0) file_failed(path_, "its length cannot be set", errno);
}

double cached_share(const BulkFile& file) {
  const u64 bytes = file.bytes(), page = static_cast<u64>(sysconf(_SC_PAGESIZE));
  if (bytes == 0) return 0;
  // Mapped, but never touched: mincore reports the page cache, and no page is read.
  void* start = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (start == MAP_FAILED) file_failed(file.path(), "it cannot be mapped", errno);
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  const int asked = mincore(start, bytes, pages.data());
  const int error = errno;
  munmap(start, bytes);
  if (asked != 0) file_failed(file.path(), "its cached pages are unknown (mincore)", error);
  const auto there = std::count_if(pages.begin(), pages.end(), [](unsigned char state) { return state & 1; });
  return static_cast<double>(there) / static_cast<double>(pages.size());
}

void evict(const BulkFile& file) {
  if (fdatasync(file.get()) != 0) file_failed(file.path(), "it cannot be written to its disk", errno);
  if (const int error = posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED); error != 0)
    file_failed(file.path(), "it cannot leave the page cache", error);
}

}  // namespace linkscope
