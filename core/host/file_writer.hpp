// Writes a new file by several threads at once, past the page cache where the file system allows that. The file has its
// name when it is complete.
#pragma once
#include <atomic>
#include <string>

#include "base/units.hpp"
#include "host/descriptor.hpp"
#include "host/file_granule.hpp"

namespace linkscope {

/// Bytes by the way they were written: past the page cache, or through it. `uring`, `cufile`: those of `direct` that
/// io_uring and cuFile wrote; threads with pwrite wrote the others.
struct WriteCounts {
  std::atomic<u64> direct{0}, buffered{0}, cufile{0}, uring{0};
  std::atomic<int> uring_refused{0};  // errno, if the kernel refused io_uring to a saving that had a use for it
};

class FileWriter {
 public:
  /// Makes a temporary file beside `path` and reserves its space. Throws Error{usage} if the directory or an existing
  /// file cannot be written, Error{failed} if the disk has no room.
  FileWriter(const std::string& path, u64 bytes);
  /// Removes the temporary file, unless commit() or discard() has.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  [[nodiscard]] u64 size() const { return size_; }
  /// The descriptor for writes by O_DIRECT; -1 if the file system refuses it.
  [[nodiscard]] int direct() const { return direct_.get(); }
  /// Whether the file has no disk: writes are copies by the CPU, which several threads make faster.
  [[nodiscard]] bool is_in_memory() const { return is_in_memory_; }
  /// Writes at an offset below size(). Whole granules go past the page cache if address and offset are equally far from
  /// a granule. Throws Error{failed}.
  void write(const std::byte* from, u64 offset, u64 bytes, WriteCounts&) const;
  /// Gives the file its name, in place of an earlier file. `durable`: after its data is on the disk. Throws
  /// Error{failed}, also if the file is in place and only its directory is not on the disk: then is_in_place().
  void commit(bool durable);
  [[nodiscard]] bool is_in_place() const { return is_in_place_; }
  /// Removes the temporary file after an error. "", or for the end of the error's text: that the file stays, and why.
  [[nodiscard]] std::string discard();

 private:
  void reserve() const;
  [[nodiscard]] u64 write_direct(const std::byte* from, u64 offset, u64 bytes) const;
  void write_buffered(const std::byte* from, u64 offset, u64 bytes, WriteCounts&) const;
  [[noreturn]] void fail(const char* what, int error) const;
  std::string path_, temporary_;
  bool is_in_place_ = false, is_in_memory_ = false;
  Descriptor file_, direct_;
  u64 size_;
};

}  // namespace linkscope
