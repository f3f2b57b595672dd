// A range of a file in the address space, to be read where the page cache has it.
#pragma once
#include <cstddef>

#include "base/units.hpp"

namespace linkscope {

/// Owns a mapping of the whole pages around a range of a file.
class MappedRange {
 public:
  /// Maps [offset, offset + bytes) and brings its pages in, where the kernel can (Linux 5.14). Throws Error{failed} if the
  /// system refuses. A page past the end of the file is refused too: to touch it would end the process by SIGBUS.
  MappedRange(int file, u64 offset, u64 bytes);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  /// The first page.
  [[nodiscard]] std::byte* pages() const { return pages_; }
  /// The bytes of all pages.
  [[nodiscard]] u64 bytes() const { return bytes_; }
  /// Where the byte at this offset of the file is.
  [[nodiscard]] const std::byte* at(u64 offset) const { return pages_ + (offset - begin_); }

 private:
  void bring_in() const;
  u64 begin_, bytes_;  // of whole pages
  std::byte* pages_ = nullptr;
};

}  // namespace linkscope
