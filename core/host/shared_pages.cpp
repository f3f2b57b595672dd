#include "host/shared_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "host/pages.hpp"

namespace linkscope {
namespace {

[[noreturn]] void refused(ErrorKind kind, const std::string& what) {
  throw Error{kind, what + ": " + std::strerror(errno)};
}

}  // namespace

SharedPages::SharedPages(u32 node, u64 bytes) : bytes_{bytes} {
  descriptor_ = Descriptor{memfd_create("linkscope", MFD_CLOEXEC)};
  if (!descriptor_) refused(ErrorKind::failed, "no shared memory (memfd_create)");
  if (ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) != 0)
    refused(ErrorKind::memory, "no " + bytes_text(bytes) + " of shared memory");
  map(descriptor_.get());
  madvise(data_, bytes_, MADV_NOHUGEPAGE);  // as for other host memory
  bind_to_node(data_, bytes_, node);        // for the object: any process may touch it
}

SharedPages::SharedPages(const Descriptor& made, u64 bytes) : bytes_{bytes} {
  struct stat found{};
  if (fstat(made.get(), &found) != 0) refused(ErrorKind::failed, "no shared memory by its descriptor");
  if (static_cast<u64>(found.st_size) < bytes)
    throw Error{ErrorKind::failed, "shared memory of " + bytes_text(static_cast<u64>(found.st_size)) +
                                       " came instead of " + bytes_text(bytes)};
  map(made.get());
}

void SharedPages::map(int descriptor) {
  void* start = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (start == MAP_FAILED) refused(ErrorKind::memory, "no room for " + bytes_text(bytes_) + " of shared memory");
  data_ = static_cast<std::byte*>(start);
}

SharedPages::~SharedPages() {
  if (data_) munmap(data_, bytes_);
}

SharedPages::SharedPages(SharedPages&& other) noexcept { *this = std::move(other); }

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void SharedPages::touch() {
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE));
  for (u64 at = 0; at < bytes_; at += page) static_cast<volatile std::byte*>(data_)[at] = std::byte{1};
}

}  // namespace linkscope
