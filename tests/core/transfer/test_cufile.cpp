// Files that cuFile moves, on a fake libcufile: exact data, and another way where it cannot.
#include <filesystem>
#include <fstream>
#include <thread>

#include "random_blocks.hpp"

using namespace linkscope;

namespace {

/// The fake's own calls (tests/fake_cuda/cufile.cpp).
struct FakeCufile {
  void (*set)(const char* failing, std::size_t most, bool compatible);
  int (*registered)();
};

const FakeCufile& fake_cufile() {
  static const FakeCufile found = [] {
    void* library = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
    const FakeCufile made{reinterpret_cast<void (*)(const char*, std::size_t, bool)>(dlsym(library, "fake_cufile_set")),
                          reinterpret_cast<int (*)()>(dlsym(library, "fake_cufile_registered"))};
    const bool is_found = made.set != nullptr && made.registered != nullptr;
    REQUIRE(is_found);
    return made;
  }();
  return found;
}

/// What cuFile does while it lives: a call that fails, short calls, or its compatibility mode. No file is cached.
struct Behaviour {
  explicit Behaviour(const char* failing, std::size_t most = ~std::size_t{0}, bool compatible = false) {
    fake_cufile().set(failing, most, compatible);
    pretend_nothing_cached(true);
  }
  ~Behaviour() {
    fake_cufile().set(nullptr, ~std::size_t{0}, false);
    pretend_nothing_cached(false);
  }
  Behaviour(const Behaviour&) = delete;
  Behaviour& operator=(const Behaviour&) = delete;
};

constexpr Knobs by_cufile{false, 3, 64_KiB, 2, 1, 0, 0, 1, 1, true};

Options with_cufile() {
  Options options = small_chunks();
  for (const u64 start : file_classes)
    options.of(StagedWork::read_cold, start) = options.of(StagedWork::write_file, start) = by_cufile;
  return options;
}

/// Reads two pieces of the file at odd offsets and checks every byte. Returns the bytes that cuFile read.
u64 read_pieces(Transfers& transfers, const Application& with, const FileReader& file, const Bytes& data) {
  std::memset(with.on_gpu(), 0x5A, 4_MiB);
  const u64 first = 700'001, second = data.size() - 800'003;
  const FilePiece pieces[] = {{3, first, with.on_gpu(1)}, {800'003, second, with.on_gpu(first + 100)}};
  ReadCounts counts;
  Progress progress;
  transfers.read(file, pieces, with.stream->get(), counts, progress);
  with.stream->synchronize();
  CHECK(same(with.on_gpu(1), data.data() + 3, first));
  CHECK(same(with.on_gpu(first + 100), data.data() + 800'003, second));
  CHECK(with.on_gpu()[0] == std::byte{0x5A});
  CHECK(with.on_gpu()[first + 1] == std::byte{0x5A});
  CHECK(progress.done == first + second);
  CHECK(counts.cufile <= counts.direct);
  return counts.cufile;
}

/// Saves memory of the GPU and of the host, and checks the file. Returns the bytes that cuFile wrote.
u64 save_parts(Transfers& transfers, const Application& with, const std::string& path, u64 host_bytes) {
  const auto on_gpu = random_bytes(1'000'001, 80), on_host = random_bytes(host_bytes, 81);
  std::memcpy(with.on_gpu(), on_gpu.data(), on_gpu.size());
  const FileSource sources[] = {{on_host.data(), on_host.size(), nullptr},
                                {with.on_gpu(), on_gpu.size(), with.stream->get()}};
  WriteCounts counts;
  Progress progress;
  transfers.save(path, sources, false, counts, progress);
  Bytes written(host_bytes + on_gpu.size());
  std::ifstream file{path, std::ios::binary};
  file.read(reinterpret_cast<char*>(written.data()), static_cast<std::streamsize>(written.size()));
  CHECK(std::filesystem::file_size(path) == written.size());
  CHECK(same(written.data(), on_host.data(), host_bytes));
  CHECK(same(written.data() + host_bytes, on_gpu.data(), on_gpu.size()));
  CHECK(counts.direct + counts.buffered == written.size());
  CHECK(progress.done == written.size());
  return counts.cufile;
}

}  // namespace

TEST_CASE("cuFile reads and writes files exactly, also in short calls, and every file is deregistered") {
  const Application with;
  const auto data = random_bytes(2_MiB + 77, 82);
  const File file{data};
  const FileReader reader{file.path.string()};
  if (reader.direct() < 0) return;  // a file system without O_DIRECT
  for (const std::size_t most : {~std::size_t{0}, std::size_t{4096}}) {
    const Behaviour works{nullptr, most};
    Transfers transfers{with_cufile()};
    CHECK(read_pieces(transfers, with, reader, data) == data.size() - 100'002);
    CHECK(save_parts(transfers, with, file.path.string() + "-2", 8192) == 1'000'001 / 4096 * 4096);
    CHECK(transfers.latest_fallback().empty());
    CHECK(fake_cufile().registered() == 0);
  }
  std::filesystem::remove(file.path.string() + "-2");
}

TEST_CASE("an error in any call of cuFile, and its compatibility mode, leave files to the ring, which is said") {
  const Application with;
  const auto data = random_bytes(2_MiB + 77, 83);
  const File file{data};
  const FileReader reader{file.path.string()};
  if (reader.direct() < 0) return;
  const u64 held = fake().held();
  for (const char* call : {"cuFileDriverOpen", "cuFileDriverGetProperties", "cuFileHandleRegister", "cuFileRead",
                           "cuFileWrite", "compatibility mode"}) {
    const std::string name{call};
    CAPTURE(name);
    const Behaviour broken{call, ~std::size_t{0}, name == "compatibility mode"};
    Transfers transfers{with_cufile()};
    CHECK((read_pieces(transfers, with, reader, data) == 0) == (name != "cuFileWrite"));
    CHECK((transfers.latest_fallback().find(call) == std::string::npos) == (name == "cuFileWrite"));
    CHECK((save_parts(transfers, with, file.path.string() + "-2", 8192) == 0) == (name != "cuFileRead"));
    CHECK(transfers.latest_fallback().find("cufile: ") == 0);
    CHECK(transfers.latest_fallback().find(call) != std::string::npos);
    CHECK(fake_cufile().registered() == 0);
  }
  CHECK(fake().held() == held);
  std::filesystem::remove(file.path.string() + "-2");
}

TEST_CASE("a part that begins within a page of the file is not written by cuFile, which is said") {
  const Application with;
  const Behaviour works{nullptr};
  Transfers transfers{with_cufile()};
  const auto path = (std::filesystem::temp_directory_path() / ("cufile-" + std::to_string(getpid()))).string();
  CHECK(save_parts(transfers, with, path, 100) == 0);
  CHECK(transfers.latest_fallback().find("within a page") != std::string::npos);
  std::filesystem::remove(path);
}

TEST_CASE("a reading by cuFile that is cancelled says so, and its file is deregistered") {
  const Application with;
  const auto data = random_bytes(1_MiB, 84);
  const File file{data};
  const FileReader reader{file.path.string()};
  if (reader.direct() < 0) return;
  const Behaviour works{nullptr};
  Transfers transfers{with_cufile()};
  ReadCounts counts;
  Progress progress;
  progress.cancelled = true;
  CHECK_THROWS_AS(transfers.read(reader, {{{0, data.size(), with.on_gpu()}}}, with.stream->get(), counts, progress),
                  Cancelled);
  CHECK(fake_cufile().registered() == 0);
}

TEST_CASE("cuFile reads and writes after the work that is on the stream") {
  const Application with;
  const auto data = random_bytes(256_KiB, 85), later = random_bytes(256_KiB, 86);
  const File file{data};
  const FileReader reader{file.path.string()};
  if (reader.direct() < 0) return;
  const Behaviour works{nullptr};
  Transfers transfers{with_cufile()};
  const PinnedMemory pinned{the_driver(), 256_KiB, 0};
  std::memcpy(pinned.data(), later.data(), later.size());
  const Gate gate{with};
  LINKSCOPE_CU(the_driver(), cuMemcpyHtoDAsync, with.memory.address(), pinned.data(), later.size(), with.stream->get());
  {
    const std::jthread opener{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      gate.open();
    }};
    ReadCounts counts;
    Progress progress;
    transfers.read(reader, {{{0, data.size(), with.on_gpu()}}}, with.stream->get(), counts, progress);
    CHECK(counts.cufile == data.size());
  }
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), data.data(), data.size()));
}

TEST_CASE("a plain saving reads the GPU's memory by the driver's own copies, and is exact") {
  const Application with;
  Options options = small_chunks();
  for (const u64 start : file_classes) options.of(StagedWork::write_file, start).plain = true;
  Transfers transfers{options};
  const auto path = (std::filesystem::temp_directory_path() / ("plain-" + std::to_string(getpid()))).string();
  CHECK(save_parts(transfers, with, path, 100) == 0);
  CHECK(transfers.arena_bytes() == 0);
  std::filesystem::remove(path);
}
