// Files that tests read, and what the system's calls for reading do in place of reading.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "host/file_reader.hpp"
#include "transfer_testing.hpp"

namespace linkscope {

/// What the system's calls for reading do in place of reading.
struct FileFaults {
  std::atomic<int> pread_error{0}, nowait_error{0}, uring_error{0};
  std::atomic<bool> nothing_cached{false};
  std::atomic<std::int64_t> moved{-1};  // by each read of io_uring, if not below 0; -errno ends it with an error
  std::atomic<std::int64_t> moved_error{0};
  std::atomic<u64> pread_after{0}, most{~u64{0}};
  std::atomic<u64> preads{0};
  std::atomic<u32> in_flight{0};  // the most reads of io_uring at once
};
extern FileFaults injected;

/// A file that ends, with all faults, when the test does.
struct TemporaryFile {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("linkscope-" + std::to_string(getpid()));
  explicit TemporaryFile(const Bytes& data) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    REQUIRE_MESSAGE(std::fwrite(data.data(), 1, data.size(), file) == data.size(), path.string());
    std::fclose(file);
  }
  ~TemporaryFile() {
    std::filesystem::remove(path);
    injected.pread_error = injected.nowait_error = injected.uring_error = 0;
    injected.nothing_cached = false;
    injected.moved = -1, injected.moved_error = 0;
    injected.pread_after = injected.preads = 0;
    injected.in_flight = 0;
    injected.most = ~u64{0};
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

/// Keeps a file, or a part of it, in the page cache, from which a busy machine would otherwise remove it.
class Resident {
 public:
  explicit Resident(const std::filesystem::path& path, u64 offset = 0, u64 bytes = 0);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

 private:
  u64 bytes_;
  void* start_;
};

/// A temporary file whose pages stay in the page cache.
struct CachedFile : TemporaryFile {
  using TemporaryFile::TemporaryFile;
  const Resident resident{path};
};

/// Pieces of random sizes and distances in the order of the file, placed with gaps.
std::vector<FilePiece> random_pieces(u64 file_bytes, std::byte* dst, u64 longest, u64 seed);
/// Whether the kernel and the file system have what cold files are read by.
bool has_uring(const FileReader& file);
/// Reads a whole file to the GPU, checks the data and returns the counts by `counts`, and the first error.
std::string read_whole(const Application& with, const FileReader& file, const Bytes& data, ReadCounts& counts);
u64 cached_pages(const std::filesystem::path& path);
/// Writes the file to its disk, and removes it from the page cache.
void evict(const std::filesystem::path& path);
bool arrived(const std::vector<FilePiece>& pieces, const Bytes& data);
/// Reads random pieces to the GPU and to the host, and returns the first error.
std::string read_all(const Application& with, const FileReader& file, const Bytes& data, u64 longest);

}  // namespace linkscope
