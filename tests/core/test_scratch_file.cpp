// Files without a name: cold and warm pages, room on the disk, and copies of a CPU thread from and to them.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "doctest.h"
#include "error_of.hpp"
#include "host/scratch_file.hpp"
#include "host/words.hpp"

using namespace linkscope;

namespace {

namespace fs = std::filesystem;

constexpr u64 bytes = u64{2} << 20;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("linkscope-scratch-" + std::to_string(getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

Word address(const void* at) { return reinterpret_cast<Word>(at); }

/// Requests of all queues of this process that have ended, as the kernel counts them; nothing if it does not say.
std::optional<u64> ended_requests() {
  std::optional<u64> found;
  for (const auto& entry : fs::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone) != "anon_inode:[io_uring]") continue;
    std::ifstream info{"/proc/self/fdinfo/" + entry.path().filename().string()};
    for (std::string name; info >> name;)
      if (u64 count = 0; name == "CqTail:" && info >> count) found = found.value_or(0) + count;
  }
  return found;
}

}  // namespace

TEST_CASE("a scratch file has no name, is warm when it is filled and cold when it is evicted") {
  const Folder folder;
  ScratchFile file{folder.path.string(), bytes};
  CHECK(fs::is_empty(folder.path));
  std::memset(file.data(), 7, bytes);
  CHECK(file.cached_share(bytes) == 1);
  file.evict();
  if (const double share = file.cached_share(bytes); share > 0.05) {
    MESSAGE("not tested: files in memory stay cached, ", share);
    return;
  }
  CHECK(file.data()[bytes - 1] == std::byte{7});
  file.touch(bytes);
  CHECK(file.cached_share(bytes) == 1);
  file = ScratchFile{};
  CHECK(file.data() == nullptr);
}

TEST_CASE("a CPU thread copies from a file and to a file, through the page cache and past it") {
  const Folder folder;
  const ScratchFile file{folder.path.string(), bytes};
  std::memset(file.data(), 3, bytes);
  void* start = nullptr;
  REQUIRE(posix_memalign(&start, 4096, 8192) == 0);
  for (const int descriptor : {file.buffered(), file.direct()}) {
    if (descriptor < 0) continue;
    const FileMemory files[] = {{address(file.data()), bytes, descriptor}};
    CpuMemory memory;
    memory.files = files;
    std::memset(start, 0, 8192);
    memory.copy(address(start), address(file.data()) + 4096, 8192);
    CHECK(static_cast<unsigned char*>(start)[8191] == 3);
    std::memset(start, 9, 8192);
    memory.copy(address(file.data()) + bytes - 8192, address(start), 8192);
    CHECK(file.data()[bytes - 1] == std::byte{9});
    CHECK(file.data()[bytes - 8193] == std::byte{3});
    std::memset(file.data(), 3, bytes);
  }
  const FileMemory none[] = {{address(file.data()), bytes, -1}};
  CpuMemory memory;
  memory.files = none;
  CHECK(error_of([&] {
          memory.copy(address(start), address(file.data()), 8);
        }).find("a file cannot be read: Bad file") != std::string::npos);
  CHECK(error_of([&] { memory.copy(address(file.data()), address(start), 8); }).find("cannot be written: Bad file") !=
        std::string::npos);
  free(start);
}

TEST_CASE(
    "requests in flight that fail leave none behind, and the next copy by the same queue is exact, in four parts") {
  int refused = 0;
  const auto queue = Uring::open(4, refused);
  if (!queue) {
    MESSAGE("not tested: the kernel refuses io_uring");
    return;
  }
  const Folder folder;
  const ScratchFile file{folder.path.string(), bytes};
  for (u64 at = 0; at < bytes; ++at) file.data()[at] = static_cast<std::byte>(at / 4096);
  std::vector<std::byte> target(65536);
  const auto copy = [&](int descriptor) {
    const FileMemory files[] = {{address(file.data()), bytes, descriptor, queue.get(), 4}};
    CpuMemory memory;
    memory.files = files;
    memory.copy(address(target.data()), address(file.data()) + 8192, target.size());
  };
  CHECK(error_of([&] { copy(-1); }).find("io_uring cannot read a file: Bad file") != std::string::npos);
  CHECK(queue->in_flight() == 0);
  const auto before = ended_requests();
  copy(file.buffered());
  CHECK(std::memcmp(target.data(), file.data() + 8192, target.size()) == 0);
  if (before) CHECK(ended_requests() == *before + 4);
}

TEST_CASE("requests in flight behind the end of a file are an error") {
  int refused = 0;
  const auto queue = Uring::open(4, refused);
  if (!queue) {
    MESSAGE("not tested: the kernel refuses io_uring");
    return;
  }
  const Folder folder;
  const ScratchFile file{folder.path.string(), bytes};
  std::vector<std::byte> target(65536);
  // The table has more bytes than the file.
  const FileMemory files[] = {{address(file.data()), 2 * bytes, file.buffered(), queue.get(), 4}};
  CpuMemory memory;
  memory.files = files;
  CHECK(error_of([&] {
          memory.copy(address(target.data()), address(file.data()) + bytes - 4096, target.size());
        }).find("a file cannot be read") != std::string::npos);
  CHECK(queue->in_flight() == 0);
}

TEST_CASE("directories that hold no scratch file are refused with the reason") {
  const Folder folder;
  CHECK(why_no_scratch_file(folder.path.string(), bytes).empty());
  CHECK(why_no_scratch_file("/nonexistent", bytes).find("No such file or directory") != std::string::npos);
  CHECK(why_no_scratch_file(folder.path.string(), u64{1} << 60).find("does not fit in") != std::string::npos);
  CHECK(error_of([&] { ScratchFile{folder.path.string(), u64{1} << 60}; }).find("does not fit in") !=
        std::string::npos);
  CHECK(error_of([] { ScratchFile{"/nonexistent", bytes}; }).find("no file can be made") != std::string::npos);
  const auto plain = (folder.path / "plain").string();
  std::ofstream{plain} << "text";
  CHECK(why_no_scratch_file(plain, bytes).find("is no directory") != std::string::npos);
  if (geteuid() == 0) return;  // who may write everything
  fs::permissions(folder.path, fs::perms::owner_read | fs::perms::owner_exec);
  CHECK(why_no_scratch_file(folder.path.string(), bytes).find("Permission denied") != std::string::npos);
}
