// A file of random data that trials read: in a directory, or in memory.
#pragma once
#include <string>

#include "host/descriptor.hpp"
#include "host/scratch_file.hpp"

namespace linkscope {

class TrialFile {
 public:
  /// Writes the file. It has no name. An empty directory stands for memory. Throws Error{memory} if there is no room,
  /// Error{failed} otherwise.
  TrialFile(const std::string& directory, u64 bytes);

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] u64 bytes() const { return bytes_; }
  /// By which this process opens the file again.
  [[nodiscard]] std::string path() const;
  /// Brings the first `bytes` into the page cache, or removes the file from it. Throws Error{failed} if it stays there.
  void prepare(bool is_cold, u64 bytes) const;

 private:
  std::string directory_;
  u64 bytes_;
  ScratchFile on_disk_;
  Descriptor in_memory_;
};

}  // namespace linkscope
