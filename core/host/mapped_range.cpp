#include "host/mapped_range.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.hpp"

namespace linkscope {
namespace {

u64 page_bytes() { return static_cast<u64>(sysconf(_SC_PAGESIZE)); }

[[noreturn]] void refuse(u64 offset, int error) {
  throw Error{ErrorKind::failed,
              "the file cannot be mapped at byte " + std::to_string(offset) + ": " + std::strerror(error)};
}

}  // namespace

MappedRange::MappedRange(int file, u64 offset, u64 bytes)
    : begin_{offset / page_bytes() * page_bytes()},
      bytes_{(offset + bytes - begin_ + page_bytes() - 1) / page_bytes() * page_bytes()} {
  void* mapped = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file, static_cast<off_t>(begin_));
  if (mapped == MAP_FAILED) refuse(begin_, errno);
  pages_ = static_cast<std::byte*>(mapped);
  try {
    bring_in();
  } catch (...) {
    munmap(pages_, bytes_);
    throw;
  }
}

MappedRange::~MappedRange() { munmap(pages_, bytes_); }

void MappedRange::bring_in() const {
#ifdef MADV_POPULATE_READ
  // An older kernel has no such advice. The driver brings the pages in when it registers them.
  if (madvise(pages_, bytes_, MADV_POPULATE_READ) != 0 && errno != EINVAL) refuse(begin_, errno);
#endif
}

}  // namespace linkscope
