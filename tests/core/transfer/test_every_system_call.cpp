// Whichever call of the system fails while files are read, loaded and saved and memory is copied, the data is right or the
// error is clear, an earlier file is as it was, and nothing is left.
#include <sys/mman.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "host/uring.hpp"
#include "random_blocks.hpp"
#include "saves_testing.hpp"
#include "system_calls.hpp"

using namespace linkscope;

namespace {

namespace fs = std::filesystem;

constexpr u64 bytes = 256_KiB + 77, large_bytes = 4_MiB, old_bytes = 1000;

u64 open_descriptors() { return static_cast<u64>(std::distance(fs::directory_iterator{"/proc/self/fd"}, {})); }

/// Sources and destinations, and what each operation must leave.
struct Operations {
  Operations() {
    Options options = small_chunks();
    options.arena_bytes = 512_KiB;  // two slots, which reads use several times
    transfers = std::make_unique<Transfers>(options);
    map_cached(false);
    std::memcpy(with.on_gpu(1_MiB), data.data(), bytes);
    std::memcpy(with.on_gpu(2_MiB), large.data(), large_bytes);
    fs::create_directory(folder);
  }
  ~Operations() {
    munmap(fresh, large_bytes);
    fs::remove_all(folder);
  }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  /// Whether the GPU copies cached files from the page cache.
  void map_cached(bool mapped) {
    for (const u64 start : file_classes)
      transfers->set(StagedWork::read_cached, start, {false, 2, 32_KiB, 2, 1, 0, 0, 1, 1, false, false, 0, mapped});
  }
  /// `uring`: reads of io_uring in flight, of a file that is not in the page cache; 0: threads read.
  void read(std::byte* dst, bool cold, u32 uring = 2) {
    ReadCounts counts;
    Progress progress;
    for (const u64 start : file_classes)
      transfers->set(StagedWork::read_cold, start, {false, 2, 32_KiB, 2, 1, 0, 0, 1, 1, false, false, uring});
    pretend_nothing_cached(cold);
    const FileReader reader{file.path.string()};
    transfers->read(reader, {{{0, bytes, dst}}}, with.stream->get(), counts, progress);
    with.stream->synchronize();
  }
  /// The first half from the GPU and the rest from the host.
  void save(bool durable, u32 uring) {
    for (const u64 start : file_classes)
      transfers->set(StagedWork::write_file, start, {false, 2, 32_KiB, 2, 1, 0, 0, 1, 1, false, false, uring});
    WriteCounts counts;
    Progress progress;
    const u64 half = bytes / 2;
    const std::vector<FileSource> sources{{with.on_gpu(1_MiB), half, with.stream->get()},
                                          {data.data() + half, bytes - half, nullptr}};
    transfers->save(saved, sources, durable, counts, progress);
  }
  void copy_to_fresh() { transfers->copy({fresh, with.on_gpu(2_MiB), large_bytes, with.stream->get()}); }

  /// Does one thing to memory and files that have other contents. Returns its error.
  template <class Work>
  std::string go(Work work) {
    with.stream->synchronize();  // an error before may have left copies on the stream
    std::memset(with.on_gpu(), 0, bytes);
    std::fill(host.begin(), host.end(), std::byte{0});
    madvise(fresh, large_bytes, MADV_DONTNEED);
    for (const auto& one : fs::directory_iterator{folder}) fs::remove(one);
    std::ofstream{saved} << std::string(old_bytes, 'x');
    auto error = error_of(work);
    map_cached(false);
    pretend_nothing_cached(false);
    return error;
  }

  const Application with{2_MiB + large_bytes};
  const Bytes data = random_bytes(bytes, 140), large = random_bytes(large_bytes, 141);
  const File file{data};
  Bytes host = Bytes(bytes);
  void* fresh = mmap(nullptr, large_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const fs::path folder = fs::temp_directory_path() / ("linkscope-calls-" + std::to_string(getpid()));
  const std::string saved = (folder / "saved").string();
  std::unique_ptr<Transfers> transfers;
};

constexpr const char* always_called[] = {"open",
                                         "open O_DIRECT",
                                         "open O_CREAT",
                                         "open O_DIRECTORY",
                                         "close",
                                         "fstat",
                                         "stat",
                                         "fstatfs",
                                         "mmap",
                                         "mincore",
                                         "pread",
                                         "preadv2",
                                         "pwrite",
                                         "fallocate",
                                         "fsync",
                                         "rename",
                                         "access",
                                         "fchmod",
                                         "process_vm_readv",
                                         "madvise"};
// poll as well, unless the disk is faster than the thread that asks it.
constexpr const char* called_for_cold_files[] = {"io_uring_setup", "io_uring_register", "io_uring_enter"};

struct Operation {
  const char* name;
  void (*run)(Operations&);
  bool (*arrived)(const Operations&);
};

bool on_gpu(const Operations& all) { return same(all.with.on_gpu(), all.data.data(), bytes); }
bool in_file(const Operations& all) { return content_of(all.saved) == all.data; }

constexpr Operation operations[] = {
    {"a cold file to a GPU", [](Operations& all) { all.read(all.with.on_gpu(), true); }, on_gpu},
    {"a cold file to a GPU without io_uring", [](Operations& all) { all.read(all.with.on_gpu(), true, 0); }, on_gpu},
    {"a cached file to a GPU", [](Operations& all) { all.read(all.with.on_gpu(), false); }, on_gpu},
    {"a cached file to a GPU that reads it itself",
     [](Operations& all) {
       all.map_cached(true);
       all.read(all.with.on_gpu(), false);
     },
     on_gpu},
    {"a file to the host", [](Operations& all) { all.read(all.host.data(), false); },
     [](const Operations& all) { return all.host == all.data; }},
    {"a save", [](Operations& all) { all.save(false, 0); }, in_file},
    {"a durable save", [](Operations& all) { all.save(true, 0); }, in_file},
    {"a save by io_uring", [](Operations& all) { all.save(false, 2); }, in_file},
    {"a copy to a GPU",
     [](Operations& all) {
       all.transfers->copy({all.with.on_gpu(), all.data.data(), bytes, all.with.stream->get()});
       all.with.stream->synchronize();
     },
     on_gpu},
    {"a copy to fresh memory", [](Operations& all) { all.copy_to_fresh(); },
     [](const Operations& all) { return same(all.fresh, all.large.data(), large_bytes); }},
};

/// The old file alone, or the new one where only the names of the directory may not be on the disk.
void check_saved_file(const Operations& all, const std::string& error) {
  if (error.find("is complete, but") != std::string::npos) CHECK(in_file(all));
  else CHECK(content_of(all.saved) == Bytes(old_bytes, std::byte{'x'}));
}

void fail_once(Operations& all, const Operation& operation, const std::string& kind, u64 after, u64 times, int reason) {
  const auto descriptors = open_descriptors();
  const auto mappings = live_mappings();
  const auto held = fake().held();
  const auto error = all.go([&] {
    const FailingSystem failing{kind, after, times, reason};
    operation.run(all);
  });
  CHECK_MESSAGE((error.empty() ? operation.arrived(all) : error.find(std::strerror(reason)) != std::string::npos),
                error);
  if (!error.empty()) check_saved_file(all, error);
  CHECK(open_descriptors() == descriptors);
  CHECK(live_mappings() == mappings);
  CHECK(fake().held() == held);
  const auto files = std::distance(fs::directory_iterator{all.folder}, {});
  if (kind != "unlink") CHECK(files == 1);
}

std::map<std::string, u64> calls_of(Operations& all, const Operation& operation) {
  std::map<std::string, u64> calls;
  CHECK(all.go([&] {
    const FailingSystem none{""};
    operation.run(all);
    calls = system_calls();
  }) == "");
  CHECK(operation.arrived(all));
  return calls;
}

}  // namespace

TEST_CASE("whichever call of the system fails, data and files are right or the error is clear, and nothing is left") {
  Operations all;
  std::map<std::string, u64> seen;
  for (const auto& operation : operations) {
    CAPTURE(operation.name);
    (void)calls_of(all, operation);  // the first time makes what later ones use again
    for (const auto& [kind, count] : calls_of(all, operation)) {
      CAPTURE(kind);
      seen[kind] += count;
      for (u64 after = 0; after < count; ++after) {
        CAPTURE(after);
        fail_once(all, operation, kind, after, 1, EIO);
        fail_once(all, operation, kind, after, 1, EINTR);
        fail_once(all, operation, kind, after, ~u64{0}, EIO);
      }
    }
  }
  for (const char* kind : always_called) CHECK_MESSAGE(seen.contains(kind), std::string{kind});
  int refused = 0;
  if (FileReader{all.file.path.string()}.direct() >= 0 && Uring::open(1, refused))
    for (const char* kind : called_for_cold_files) CHECK_MESSAGE(seen.contains(kind), std::string{kind});
}
