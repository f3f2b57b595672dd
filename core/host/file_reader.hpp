// Reads a file by several threads at once: from the page cache where it is there, else past it.
#pragma once
#include <atomic>
#include <optional>
#include <string>

#include "base/units.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

/// Bytes by the way they were read.
struct ReadCounts {
  std::atomic<u64> cached{0}, direct{0}, buffered{0};
};

class FileReader {
 public:
  /// Offsets, sizes and addresses of reads that may bypass the page cache are multiples of this.
  static constexpr u64 granule = 4096;

  /// Throws Error{usage} if the file cannot be opened.
  explicit FileReader(std::string path);

  [[nodiscard]] u64 size() const { return size_; }
  /// Reads [offset, offset + bytes). Throws Error{usage} if the file ends before, Error{failed} if the system refuses.
  void read(std::byte* to, u64 offset, u64 bytes, ReadCounts&) const;
  /// The same for a range that begins at a multiple of `granule` and a buffer with room for whole granules. What is not
  /// in the page cache is read by O_DIRECT, where the file system has it.
  void read_aligned(std::byte* to, u64 offset, u64 bytes, ReadCounts&) const;

 private:
  [[nodiscard]] std::optional<u64> read_cached(std::byte* to, u64 offset, u64 bytes) const;
  [[nodiscard]] bool read_direct(std::byte* to, u64 offset, u64 bytes) const;
  std::string path_;
  Descriptor file_, direct_;
  u64 size_ = 0;
};

}  // namespace linkscope
