// Reads a file by several threads at once: from the page cache where it is there, else past it.
#pragma once
#include <atomic>
#include <optional>
#include <string>

#include "base/units.hpp"
#include "host/descriptor.hpp"
#include "host/file_granule.hpp"

namespace linkscope {

/// Bytes by the way they were read. `mapped`: those of `cached` that a GPU copied from the page cache itself. `uring`,
/// `cufile`: those of `direct` that io_uring and cuFile read; threads with pread read the others.
struct ReadCounts {
  std::atomic<u64> cached{0}, direct{0}, buffered{0}, uring{0}, cufile{0}, mapped{0};
  std::atomic<int> uring_refused{0};  // errno, if the kernel refused io_uring to a reading that had a use for it
};

class FileReader {
 public:
  /// Throws Error{usage} if the file cannot be opened.
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  [[nodiscard]] u64 size() const { return size_; }
  /// Reads [offset, offset + bytes). Throws Error{usage} if the file ends before, Error{failed} if the system refuses.
  void read(std::byte* to, u64 offset, u64 bytes, ReadCounts&) const;
  /// The same for a range that begins at a multiple of `file_granule` and a buffer with room for whole granules. What is
  /// not in the page cache is read by O_DIRECT, where the file system has it.
  void read_aligned(std::byte* to, u64 offset, u64 bytes, ReadCounts&) const;
  /// The same for a range that is not in the page cache, which is not asked.
  void read_cold(std::byte* to, u64 offset, u64 bytes, ReadCounts&) const;

  /// Whether each page of the range is in the page cache. To ask costs no reads, other than an attempt to read: that
  /// starts the kernel's read-ahead. Also true if the kernel does not say, as to a user who cannot write the file.
  [[nodiscard]] bool is_cached(u64 offset, u64 bytes) const;
  /// The same by attempts to read a byte of each MiB and the last byte, also for those users. Also true if the file system
  /// does not say.
  [[nodiscard]] bool can_be_read_now(u64 offset, u64 bytes) const;
  /// Throws Error{usage} if the file now ends before byte `end`.
  void require(u64 end) const;
  /// The descriptor for reads through the page cache.
  [[nodiscard]] int buffered() const { return file_.get(); }
  /// The descriptor for reads by O_DIRECT; -1 if the file system refuses it.
  [[nodiscard]] int direct() const { return direct_.get(); }

 private:
  [[nodiscard]] std::optional<u64> read_cached(std::byte* to, u64 offset, u64 bytes) const;
  [[nodiscard]] bool read_direct(std::byte* to, u64 offset, u64 bytes) const;
  [[noreturn]] void refuse_end(u64 end, u64 needed) const;
  std::string path_;
  Descriptor file_, direct_;
  u64 size_ = 0;
  std::byte* mapped_ = nullptr;  // never touched: the kernel tells by it which pages are cached
};

}  // namespace linkscope
