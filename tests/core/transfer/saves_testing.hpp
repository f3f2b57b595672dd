// Files that tests save.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "transfer_testing.hpp"

namespace linkscope {

/// A directory that ends with the test.
struct SavesFolder {
  std::filesystem::path path;
  explicit SavesFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path{parent / ("linkscope-saves-" + std::to_string(getpid()))} {
    std::filesystem::create_directory(path);
  }
  ~SavesFolder() { std::filesystem::remove_all(path); }
  SavesFolder(const SavesFolder&) = delete;
  SavesFolder& operator=(const SavesFolder&) = delete;
  [[nodiscard]] std::string file() const { return (path / "file").string(); }
  [[nodiscard]] u64 count() const {
    return static_cast<u64>(std::distance(std::filesystem::directory_iterator{path}, {}));
  }
};

inline Bytes content_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  const auto* start = reinterpret_cast<const std::byte*>(text.data());
  return {start, start + text.size()};
}

/// What a save does. `uring`: writes of io_uring in flight; 0: threads write.
struct SaveHow {
  u32 uring = 16;
  bool mixed = false;  // every second source is on the host
  bool durable = false;
};

/// Saves the data, which is then on the GPU and on the host, as sources of these sizes. Returns the error.
inline std::string save(const Application& with, const Bytes& data, const std::vector<u64>& sizes,
                        const std::string& path, const SaveHow& how, WriteCounts& counts) {
  Options options = small_chunks();
  for (const u64 start : file_classes) options.of(StagedWork::write_file, start).uring = how.uring;
  Transfers transfers{options};
  std::memcpy(with.on_gpu(), data.data(), data.size());
  std::vector<FileSource> sources;
  u64 at = 0;
  for (std::size_t i = 0; i < sizes.size(); at += sizes[i++])
    sources.push_back({how.mixed && i % 2 ? data.data() + at : with.on_gpu(at), sizes[i], with.stream->get()});
  REQUIRE(at == data.size());
  Progress progress;
  return error_of([&] {
    transfers.save(path, sources, how.durable, counts, progress);
    CHECK(progress.done == data.size());
  });
}

inline std::vector<u64> random_sizes(u64 bytes, u64 longest, u64 seed) {
  std::mt19937_64 random{seed};
  std::vector<u64> sizes;
  for (u64 at = 0; at < bytes; at += sizes.back()) sizes.push_back(std::min(bytes - at, random() % longest));
  return sizes;
}

}  // namespace linkscope
