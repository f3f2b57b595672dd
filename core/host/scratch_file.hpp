// A file for measurements, in a directory of the user's choice. It has no name, so that it ends with its owner, also if
// that crashes.
#pragma once
#include <cstddef>
#include <string>

#include "base/units.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

/// "" or why no file of that size can be made in a directory: it is missing, cannot be written, or its disk is too full.
[[nodiscard]] std::string why_no_scratch_file(const std::string& directory, u64 bytes);

class ScratchFile {
 public:
  ScratchFile() = default;
  /// Reserves the space. Throws Error{memory} if the disk has too little, Error{failed} otherwise.
  ScratchFile(const std::string& directory, u64 bytes);
  ~ScratchFile();
  ScratchFile(ScratchFile&&) noexcept;
  ScratchFile& operator=(ScratchFile&&) noexcept;
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  /// The file's pages in the page cache, for filling and comparing; null without a file.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] u64 bytes() const { return bytes_; }
  /// For reads and writes through the page cache.
  [[nodiscard]] int buffered() const { return file_.get(); }
  /// For those past it; -1 if the file system has no O_DIRECT.
  [[nodiscard]] int direct() const { return direct_.get(); }
  /// Writes the file to its disk and removes it from the page cache, as far as the kernel complies. Throws
  /// Error{failed}.
  void evict() const;
  /// Brings the first `bytes` into the page cache.
  void touch(u64 bytes) const;
  /// The share of the pages of the first `bytes` that are in the page cache, by mincore. Throws Error{failed}.
  [[nodiscard]] double cached_share(u64 bytes) const;

 private:
  Descriptor file_, direct_;
  std::byte* data_ = nullptr;
  u64 bytes_ = 0;
};

}  // namespace linkscope
