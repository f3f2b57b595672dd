// Memory of GPUs and of the host that goes to a file: exact data, and errors of the system's calls, after which the file
// is as it was.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "host/file_writer.hpp"
#include "saves_testing.hpp"
#include "system_calls.hpp"

using namespace linkscope;

namespace {

namespace fs = std::filesystem;

/// What the system's calls for writing do in place of writing.
struct Injected {
  std::atomic<int> pwrite_error{0}, fallocate_error{0}, fsync_error{0}, rename_error{0};
  std::atomic<bool> direct_only{false};  // pwrite fails only for whole granules, as a file system without O_DIRECT
  std::atomic<u64> pwrites_before{0}, pwrites{0}, most{~u64{0}};
  void reset() {
    pwrite_error = fallocate_error = fsync_error = rename_error = 0;
    direct_only = false;
    pwrites_before = pwrites = 0;
    most = ~u64{0};
  }
} injected_writes;

struct Folder : SavesFolder {
  ~Folder() { injected_writes.reset(); }
};

/// How many writes of io_uring are in flight: threads write if there are none.
constexpr u32 in_flights[] = {0, 4};

}  // namespace

extern "C" {
ssize_t __real_pwrite(int, const void*, size_t, off_t);
ssize_t __wrap_pwrite(int file, const void* from, size_t bytes, off_t offset) {
  if (system_call_fails("pwrite")) return -1;
  const bool direct = (fcntl(file, F_GETFL) & O_DIRECT) != 0;
  if (injected_writes.pwrite_error && (direct || !injected_writes.direct_only) &&
      injected_writes.pwrites++ >= injected_writes.pwrites_before) {
    errno = injected_writes.pwrite_error;
    return -1;
  }
  return __real_pwrite(file, from, std::min<size_t>(bytes, injected_writes.most), offset);
}
int __real_fallocate(int, int, off_t, off_t);
int __wrap_fallocate(int file, int mode, off_t from, off_t bytes) {
  if (system_call_fails("fallocate")) return -1;
  if (!injected_writes.fallocate_error) return __real_fallocate(file, mode, from, bytes);
  errno = injected_writes.fallocate_error;
  return -1;
}
int __real_fsync(int);
int __wrap_fsync(int file) {
  if (system_call_fails("fsync")) return -1;
  if (!injected_writes.fsync_error) return __real_fsync(file);
  errno = injected_writes.fsync_error;
  return -1;
}
int __real_rename(const char*, const char*);
int __wrap_rename(const char* from, const char* to) {
  if (system_call_fails("rename")) return -1;
  if (!injected_writes.rename_error) return __real_rename(from, to);
  errno = injected_writes.rename_error;
  return -1;
}
}

TEST_CASE("a saved file has the bytes of its sources, of a GPU and of the host, at any size") {
  const Application with;
  const Folder folder;
  for (const u64 bytes : {u64{0}, u64{1}, u64{511}, u64{4096}, u64{4097}, 1_MiB, 3_MiB + 77})
    for (const u64 longest : {u64{60}, u64{5000}, u64{900'000}})
      for (const bool mixed : {false, true}) {
        if (bytes / longest > 10'000) continue;
        const u32 uring = in_flights[(longest + mixed) % 2];
        CAPTURE(bytes);
        CAPTURE(longest);
        const auto data = random_bytes(bytes, 70 + longest);
        WriteCounts counts;
        CHECK(save(with, data, random_sizes(bytes, longest, bytes), folder.file(), {uring, mixed}, counts) == "");
        CHECK(content_of(folder.file()) == data);
        CHECK(counts.direct + counts.buffered == bytes);
        CHECK(folder.count() == 1);
      }
}

TEST_CASE("all but the ends of a file goes past the page cache, where the file system has O_DIRECT") {
  const Application with;
  const Folder folder;
  const auto data = random_bytes(2_MiB + 77, 71);
  WriteCounts counts;
  CHECK(save(with, data, {77, 2_MiB}, folder.file(), {0, false, true}, counts) == "");
  if (Descriptor{open(folder.file().c_str(), O_RDONLY | O_DIRECT)}) CHECK(counts.direct == 2_MiB);
  injected_writes.pwrite_error = EINVAL;
  injected_writes.direct_only = true;
  WriteCounts buffered;
  CHECK(save(with, data, {data.size()}, folder.file(), {0}, buffered) == "");
  CHECK(buffered.buffered == data.size());
  CHECK(content_of(folder.file()) == data);
}

TEST_CASE("sources of two GPUs and of the host alone are saved by one call") {
  const Application with;
  const Folder folder;
  const auto data = random_bytes(1_MiB, 72);
  std::memcpy(with.on_gpu(), data.data(), data.size());
  with.other.use();
  {
    const DeviceMemory there{the_driver(), 1_MiB};
    std::memcpy(reinterpret_cast<void*>(there.address()), data.data(), data.size());
    with.gpu.use();
    Transfers transfers{small_chunks()};
    WriteCounts counts;
    Progress progress;
    const auto* other = reinterpret_cast<const std::byte*>(there.address());
    transfers.save(folder.file(),
                   {{{data.data(), 100, nullptr},
                     {with.on_gpu(100), 500'000, with.stream->get()},
                     {data.data() + 500'100, 10, nullptr},
                     {other + 500'110, 300'000, nullptr},
                     {with.on_gpu(800'110), data.size() - 800'110, with.stream->get()}}},
                   false, counts, progress);
    CHECK(content_of(folder.file()) == data);
    // Only the granules that two passes share go through the page cache.
    if (Descriptor{open(folder.file().c_str(), O_RDONLY | O_DIRECT)}) CHECK(counts.buffered == 2 * 4096);
    transfers.save(folder.file(), {{{data.data(), 700'001, nullptr}}}, false, counts, progress);
    CHECK(content_of(folder.file()) == Bytes{data.begin(), data.begin() + 700'001});
    with.other.use();
  }
  with.gpu.use();
}

TEST_CASE("short writes are continued, and a file system without reserved space is written all the same") {
  const Application with;
  const Folder folder;
  const auto data = random_bytes(1_MiB + 5, 73);
  for (const u64 most : {u64{10'000}, u64{4096}}) {
    injected_writes.most = most;
    injected_writes.fallocate_error = EOPNOTSUPP;
    WriteCounts counts;
    CHECK(save(with, data, {data.size()}, folder.file(), {0}, counts) == "");
    CHECK(content_of(folder.file()) == data);
  }
}

TEST_CASE("after an error of the system or the driver the file is as it was, and nothing is left") {
  const Application with;
  const Folder folder;
  const Bytes before = random_bytes(1000, 74);
  WriteCounts counts;
  REQUIRE(save(with, before, {before.size()}, folder.file(), {}, counts) == "");
  const auto data = random_bytes(2_MiB, 75);
  const u64 held = fake().held();
  const auto fails = [&](const char* text) {
    WriteCounts none;
    const auto error = save(with, data, {1_MiB, 1_MiB}, folder.file(), {0, true, true}, none);
    CHECK_MESSAGE(error.find(text) != std::string::npos, error);
    CHECK(content_of(folder.file()) == before);
    CHECK(folder.count() == 1);
    CHECK(fake().held() == held);
    injected_writes.reset();
  };
  for (const u64 after : {0, 3}) {
    injected_writes.pwrite_error = ENOSPC;
    injected_writes.pwrites_before = after;
    fails("cannot be written at byte");
  }
  injected_writes.pwrite_error = EIO;
  fails("of 2097152 bytes were written, and are removed");
  injected_writes.fallocate_error = ENOSPC;
  fails("has no room for 2 MiB: No space left on device");
  injected_writes.fsync_error = EIO;
  fails("cannot be written to its disk: Input/output error");
  injected_writes.rename_error = EACCES;
  fails("cannot get its name");
  for (const char* symbol : {"cuMemcpyDtoHAsync", "cuEventRecord"}) {
    const Failing failing{symbol, 1};
    fails("NOT_PERMITTED");
  }
}

TEST_CASE("a saving names the call that failed, keeps the old file, and goes on after a signal") {
  const Application with;
  const Folder folder;
  const Bytes before = random_bytes(1000, 79), data = random_bytes(300'000, 80);
  const auto saved = [&](const char* kind, u64 times, int error) {
    WriteCounts counts;
    REQUIRE(save(with, before, {before.size()}, folder.file(), {}, counts) == "");
    WriteCounts more;
    const FailingSystem failing{kind, 0, times, error};
    return save(with, data, {data.size()}, folder.file(), {0, false, true}, more);
  };
  for (const auto& [kind, text] : {std::pair{"stat", "cannot be looked up: Input/output error"},
                                   {"access", "cannot be replaced: Input/output error"},
                                   {"open O_CREAT", "cannot be made: Input/output error"},
                                   {"close", "cannot be closed: Input/output error; 300000 of 300000 bytes"}}) {
    const auto error = saved(kind, 1, EIO);
    CHECK_MESSAGE(error.find(text) != std::string::npos, error);
    CHECK(content_of(folder.file()) == before);
  }
  const auto error = saved("open O_DIRECTORY", 1, EIO);
  CHECK(error == folder.file() + " is complete, but its directory cannot be written to its disk: Input/output error");
  CHECK(content_of(folder.file()) == data);
  for (const char* kind : {"fallocate", "fsync", "pwrite"}) {
    CHECK(saved(kind, 1, EINTR) == "");
    CHECK(content_of(folder.file()) == data);
  }
  CHECK(folder.count() == 1);
}

TEST_CASE("a file beyond the limit of the process is an error that says so") {
  const Application with;
  const Folder folder;
  const auto data = random_bytes(1_MiB, 76);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{300'000, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const int refused : {0, EOPNOTSUPP})  // with reserved space, and while it is written
    for (const u32 uring : in_flights) {
      injected_writes.fallocate_error = refused;
      REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
      WriteCounts counts;
      const auto error = save(with, data, {data.size()}, folder.file(), {uring}, counts);
      REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
      CHECK_MESSAGE(error.find("File too large") != std::string::npos, error);
      CHECK(folder.count() == 0);
    }
  std::signal(SIGXFSZ, handler);
}

TEST_CASE("an error says which temporary file stays because it cannot be removed, and a signal does not keep one") {
  const Application with;
  const auto data = random_bytes(300'000, 81);
  const auto error_with = [&](const Folder& folder, auto inject, u64 times, int reason) {
    const FailingSystem failing{"unlink", 0, times, reason};
    inject();
    WriteCounts counts;
    const auto error = save(with, data, {data.size()}, folder.file(), {0, false, true}, counts);
    injected_writes.reset();
    return error;
  };
  const auto on_write = [] { injected_writes.pwrite_error = EIO; };
  for (const auto& [inject, text] :
       {std::pair<void (*)(), const char*>{on_write, " of 300000 bytes were written; "},
        {[] { injected_writes.fallocate_error = ENOSPC; }, "has no room for 293 KiB: No space left on device; "}}) {
    const Folder folder;
    const auto error = error_with(folder, inject, ~u64{0}, EACCES);
    CHECK_MESSAGE(error.find(text + folder.file() + ".part-") != std::string::npos, error);
    CHECK_MESSAGE(error.ends_with(" stays, because it cannot be removed: Permission denied"), error);
    CHECK(folder.count() == 1);
  }
  const Folder folder;
  CHECK(error_with(folder, on_write, 2, EINTR).ends_with("and are removed"));
  CHECK(folder.count() == 0);
}

TEST_CASE("a cancelled saving leaves the file as it was") {
  const Application with;
  const Folder folder;
  const auto data = random_bytes(2_MiB, 77);
  Transfers transfers{small_chunks()};
  for (const bool on_gpu : {true, false}) {
    WriteCounts counts;
    Progress progress;
    u64 reported = 0;
    progress.report = [&](u64 done) {
      reported = done;
      progress.cancelled = done == data.size();  // even the last report can cancel
    };
    const auto error = error_of([&] {
      transfers.save(folder.file(), {{{on_gpu ? with.on_gpu() : data.data(), data.size(), with.stream->get()}}}, false,
                     counts, progress);
    });
    CHECK(error == "the saving was cancelled; the file is as it was before");
    CHECK(reported == data.size());
    CHECK(folder.count() == 0);
  }
}

TEST_CASE("a saving and a reading without pinned memory go by way of ordinary memory, are exact, and say why") {
  const Application with;
  const Folder folder;
  auto options = small_chunks();
  options.arena_bytes = 4 * options.slot_bytes;
  Transfers transfers{options};
  const Stream other{the_driver()};
  u64 seed = 81, fallbacks = 0;
  const auto check = [&](const char* reason) {
    const auto data = random_bytes(1_MiB, seed++);
    std::memcpy(with.on_gpu(1_MiB), data.data(), data.size());
    std::memset(with.on_gpu(2_MiB), 0, data.size());
    WriteCounts written;
    Progress saving, reading;
    transfers.save(folder.file(), {{{with.on_gpu(1_MiB), data.size(), other.get()}}}, false, written, saving);
    CHECK(content_of(folder.file()) == data);
    ReadCounts read;
    transfers.read(FileReader{folder.file()}, {{{0, data.size(), with.on_gpu(2_MiB)}}}, other.get(), read, reading);
    other.synchronize();
    CHECK(same(with.on_gpu(2_MiB), data.data(), data.size()));
    CHECK((saving.done == data.size() && reading.done == data.size()));
    if (*reason) CHECK(transfers.latest_fallback().find(reason) != std::string::npos);
    CHECK(transfers.fallbacks() == (*reason ? fallbacks += 2 : fallbacks));
  };
  {
    const Failing failing{"cuMemHostAlloc", 0, ~0ull, CUDA_ERROR_OUT_OF_MEMORY};
    check("cuMemHostAlloc");
  }
  check("");
  const auto source = random_bytes(512_KiB, 80);
  {
    const Gate gate{with};
    transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});  // takes all slots
    check("no free slots; raise LINKSCOPE_TRANSFER_ARENA");
  }
  with.stream->synchronize();
  check("");
}

TEST_CASE("a link stays a link, and the mode of a file stays") {
  const Application with;
  const Folder folder;
  const auto data = random_bytes(5000, 78);
  const auto link = folder.path / "link";
  std::ofstream{folder.file()} << "old";
  fs::permissions(folder.file(), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("file", link);
  WriteCounts counts;
  CHECK(save(with, data, {data.size()}, link.string(), {}, counts) == "");
  CHECK(fs::is_symlink(link));
  CHECK(content_of(folder.file()) == data);
  CHECK(fs::status(folder.file()).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("paths that cannot be written, and memory that cannot be read, are refused with the reason") {
  const Application with;
  const Folder folder;
  Transfers transfers{small_chunks()};
  const auto refused = [&](const std::string& path, const void* src) {
    WriteCounts counts;
    Progress progress;
    return error_of([&] { transfers.save(path, {{{src, 8, nullptr}}}, false, counts, progress); });
  };
  CHECK(refused("/nonexistent/file", with.on_gpu()).find("cannot be made: No such file") != std::string::npos);
  CHECK(refused(folder.path.string(), with.on_gpu()).find("no regular file") != std::string::npos);
  CHECK(refused(folder.file(), reinterpret_cast<void*>(64)).find("can read") != std::string::npos);
  CHECK(folder.count() == 0);
  if (geteuid() == 0) return;  // who may write everything
  std::ofstream{folder.file()} << "old";
  fs::permissions(folder.file(), fs::perms::owner_read);
  CHECK(refused(folder.file(), with.on_gpu()).find("cannot be replaced: Permission denied") != std::string::npos);
}
