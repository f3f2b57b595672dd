// Files for bulk transfers: opened past the page cache where the file system allows it.
#pragma once
#include <string>

#include "base/units.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

class BulkFile {
 public:
  enum class Use : u8 { read, write };  // write: created, or emptied
  enum class Cache : u8 { used, bypassed };

  /// Throws Error{failed} that names the path and the reason. If the file system refuses O_DIRECT, the page cache is used
  /// and why_not_direct() says so.
  BulkFile(const std::string& path, Use, Cache);

  [[nodiscard]] int get() const { return descriptor_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] u64 bytes() const;
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] const std::string& why_not_direct() const { return why_not_direct_; }
  /// Addresses, offsets and lengths of direct requests are multiples of this. 1 with the page cache.
  [[nodiscard]] u64 granule() const { return granule_; }
  /// Sets the length, so that writes of whole granules do not leave a longer file. Throws Error{failed}.
  void resize(u64 bytes) const;

 private:
  std::string path_;
  Descriptor descriptor_;
  bool direct_ = false;
  std::string why_not_direct_;
  u64 granule_ = 1;
};

/// The fraction of the pages of a file that are in the page cache, by mincore. Throws Error{failed}.
[[nodiscard]] double cached_share(const BulkFile&);
/// Writes dirty pages to the disk and removes the file from the page cache as far as the kernel complies; cached_share()
/// shows how far. Throws Error{failed}.
void evict(const BulkFile&);

/// Fails with the errno of a call on a file.
[[noreturn]] void file_failed(const std::string& path, const char* what, int error);

}  // namespace linkscope
