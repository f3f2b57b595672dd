// Files that the GPU copies from the page cache: exact data, and the staged way where pages cannot be mapped or pinned.
#include <fcntl.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "file_faults.hpp"
#include "system_calls.hpp"

using namespace linkscope;

namespace {

constexpr u64 window = 128_KiB;  // the least that the library takes
constexpr Knobs by_mapping{false, 3, window, 2, 1, 0, 0, 1, 1, false, false, 0, true};

Options with_mapping(const Knobs& knobs = by_mapping) {
  Options options = small_chunks();
  for (const u64 start : file_classes) options.of(StagedWork::read_cached, start) = knobs;
  return options;
}

/// One reading of a piece to the GPU.
struct Reading {
  Reading(const Application& with, const Options& options = with_mapping()) : owner{with}, transfers{options} {}
  /// Returns the error. Without one, the piece must have arrived, and nothing beside it changed.
  std::string read(const FileReader& file, const Bytes& data, u64 offset, u64 bytes) {
    const auto* before = data.data() + offset;
    std::memset(owner.on_gpu(), 0x5A, bytes + 100);
    const std::vector<FilePiece> pieces{{offset, bytes, owner.on_gpu(50)}};
    const auto error = error_of([&] { transfers.read(file, pieces, owner.stream->get(), counts, progress); });
    owner.stream->synchronize();
    if (!error.empty()) return error;
    CHECK(same(owner.on_gpu(50), before, bytes));
    CHECK(owner.on_gpu()[49] == std::byte{0x5A});
    CHECK(owner.on_gpu()[50 + bytes] == std::byte{0x5A});
    CHECK(progress.done == bytes);
    return "";
  }
  const Application& owner;
  Transfers transfers;
  ReadCounts counts;
  Progress progress;
};

/// One thread takes the windows in their order.
Options by_one_thread() {
  Knobs knobs = by_mapping;
  knobs.threads = 1;
  return with_mapping(knobs);
}

/// Memory, mappings and descriptors that the library holds.
struct Held {
  u64 driver = fake().held();
  std::int64_t mappings = live_mappings();
  bool operator==(const Held&) const = default;
};

}  // namespace

TEST_CASE("a piece that begins and ends beside the ends of pages and windows is exact, and the GPU copies it itself") {
  const Application with;
  const auto data = random_bytes(1_MiB + 77, 150);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  const Held before;
  for (const u64 offset : {u64{0}, u64{1}, u64{4095}, u64{4096}, u64{4097}, window - 64_KiB, window - 1, window + 1})
    for (const u64 bytes :
         {64_KiB, 64_KiB + 1, window - 1, window, window + 1, 3 * window + 4095, data.size() - offset}) {
      CAPTURE(offset);
      CAPTURE(bytes);
      Reading one{with};
      CHECK(one.read(reader, data, offset, bytes) == "");
      CHECK(one.transfers.latest_fallback() == "");
      // At most the two ends are too short.
      CHECK(one.counts.mapped + 2 * 64_KiB > bytes);
      CHECK(one.counts.mapped <= bytes);
      CHECK(one.counts.direct + one.counts.buffered == 0);
    }
  CHECK(Held{} == before);
}

TEST_CASE("an empty piece maps nothing, and pieces below 64 KiB are staged") {
  const Application with;
  const auto data = random_bytes(300'000, 151);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  for (const u64 bytes : {u64{0}, u64{1}, u64{4096}, 64_KiB - 1}) {
    Reading one{with};
    fake().fail(nullptr, 0, 0, 0);
    CHECK(one.read(reader, data, 4095, bytes) == "");
    CHECK(fake().calls("cuMemHostRegister") == 0);
    CHECK(one.counts.mapped == 0);
    CHECK(one.transfers.latest_fallback() == "");
  }
}

TEST_CASE("windows that are pinned at the same time have at most the bytes of the arena") {
  const Application with;
  const auto data = random_bytes(4_MiB, 152);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  Options options = with_mapping({false, 4, 64_MiB, 2, 1, 0, 0, 1, 1, false, false, 0, true});
  options.arena_bytes = 1_MiB;
  Reading one{with, options};
  fake().fail(nullptr, 0, 0, 0);
  CHECK(one.read(reader, data, 0, data.size()) == "");
  CHECK(one.counts.mapped == data.size());
  CHECK(fake().calls("cuMemHostRegister") == 16);  // four threads have 256 KiB each
}

TEST_CASE("a file that is not in the page cache is not mapped") {
  const Application with;
  const auto data = random_bytes(1_MiB, 153);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  injected.nothing_cached = true;
  if (reader.is_cached(0, data.size())) return;  // a file system in memory
  Reading one{with};
  fake().fail(nullptr, 0, 0, 0);
  CHECK(one.read(reader, data, 0, data.size()) == "");
  CHECK(one.counts.mapped == 0);
  CHECK(fake().calls("cuMemHostRegister") == 0);
}

TEST_CASE("a window that lacks a page is staged where mincore does not tell, and nothing is noted") {
  const Application with;
  const auto data = random_bytes(1_MiB, 163);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  for (const int error : {EAGAIN, EOPNOTSUPP}) {
    injected.nowait_error = error;
    Reading one{with};
    CHECK(one.read(reader, data, 0, data.size()) == "");
    CHECK(one.counts.mapped == (error == EAGAIN ? 0 : data.size()));
    CHECK(one.transfers.latest_fallback() == "");
  }
}

TEST_CASE("an error in any call for a window leaves the rest of the file to the ring, which is said") {
  const Application with;
  const auto data = random_bytes(1_MiB + 77, 154);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  const Held before;
  for (const char* call : {"cuMemHostRegister", "cuMemHostUnregister", "cuMemcpyHtoDAsync", "cuEventCreate",
                           "cuEventRecord", "cuEventSynchronize"})
    for (const u64 after : {u64{0}, u64{3}}) {
      CAPTURE(call);
      CAPTURE(after);
      {
        Reading one{with};
        const Failing once{call, after, 1};
        CHECK(one.read(reader, data, 0, data.size()) == "");
        CHECK(one.transfers.latest_fallback().find("mapped: " + std::string{call}) == 0);
        CHECK(one.counts.mapped < data.size());
        CHECK(one.counts.mapped % window == 0);
      }
      CHECK(Held{} == before);
    }
}

TEST_CASE("a driver that cannot register memory for reading leaves the file to the ring, which is said") {
  const Application with;
  const auto data = random_bytes(1_MiB, 155);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  for (const CUresult refusal : {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    Reading one{with};
    const Failing failing{"cuMemHostRegister", 0, ~0ull, refusal};
    CHECK(one.read(reader, data, 0, data.size()) == "");
    CHECK(one.counts.mapped == 0);
    CHECK(one.counts.cached == data.size());
    CHECK(fake().calls("cuMemHostRegister") <= by_mapping.threads);  // none tries a second window
    CHECK(one.transfers.latest_fallback().find("mapped: cuMemHostRegister: CUDA_ERROR_") == 0);
  }
}

TEST_CASE("pages are unmapped only after the copies from them, also if the driver reports an error meanwhile") {
  const Application with;
  const auto data = random_bytes(window, 164);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  Transfers transfers{with_mapping()};
  ReadCounts counts;
  Progress progress;
  const Gate gate{with};
  const std::jthread opener{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    gate.open();
  }};
  const Failing once{"cuEventRecord", 0, 1};
  transfers.read(reader, {{{0, data.size(), with.on_gpu()}}}, with.stream->get(), counts, progress);
  CHECK(fake().calls("cuStreamSynchronize") == 1);
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), data.data(), data.size()));
}

TEST_CASE(
    "pages whose registration the driver does not end stay mapped, so that no other memory gets their addresses") {
  const Application with;
  const auto data = random_bytes(1_MiB, 166);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  const Held before;
  {
    Reading one{with, by_one_thread()};
    const Failing always{"cuMemHostUnregister"};
    CHECK(one.read(reader, data, 0, data.size()) == "");
    CHECK(one.counts.mapped == 0);
  }
  CHECK(live_mappings() == before.mappings + 1);
}

TEST_CASE("two pieces of one window are pinned together, also if they overlap in the file") {
  const Application with;
  const auto data = random_bytes(1_MiB, 165);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  Transfers transfers{with_mapping()};
  ReadCounts counts;
  Progress progress;
  const u64 bytes = 200_KiB;
  fake().fail(nullptr, 0, 0, 0);
  transfers.read(reader, {{{0, bytes, with.on_gpu()}, {0, bytes, with.on_gpu(1_MiB)}}}, with.stream->get(), counts,
                 progress);
  CHECK(fake().calls("cuMemHostRegister") == 2);
  CHECK(counts.mapped == 2 * bytes);
  CHECK(same(with.on_gpu(), data.data(), bytes));
  CHECK(same(with.on_gpu(1_MiB), data.data(), bytes));
}

TEST_CASE(
    "a file that cannot be mapped is staged, which is said; a kernel without the advice to bring pages in maps it") {
  const Application with;
  const auto data = random_bytes(1_MiB, 156);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  const struct {
    const char* call;
    int error;
    bool maps;
  } cases[] = {{"mmap", ENODEV, false}, {"madvise", EFAULT, false}, {"fstat", EIO, false}, {"madvise", EINVAL, true}};
  for (const auto& [call, error, maps] : cases) {
    CAPTURE(call);
    CAPTURE(error);
    Reading one{with};
    CHECK(one.read(reader, data, 0, window) == "");  // makes what later readings use again
    one.counts.mapped = one.progress.done = 0;
    const FailingSystem failing{call, 0, ~u64{0}, error};
    CHECK(one.read(reader, data, 0, data.size()) == "");
    CHECK(one.counts.mapped == (maps ? data.size() : 0));
    CHECK((one.transfers.latest_fallback().find(std::strerror(error)) != std::string::npos) == !maps);
  }
}

TEST_CASE("a file that became shorter before or during the copy is an error that says so, and not a signal") {
  const Application with;
  const auto data = random_bytes(1_MiB, 157);
  for (const u64 left : {u64{0}, u64{1}, window, 5 * window + 1, data.size() - 1}) {
    CAPTURE(left);
    const CachedFile file{data};
    const FileReader reader{file.path.string()};
    const Held before;
    {
      Reading one{with};
      std::filesystem::resize_file(file.path, left);
      CHECK(one.read(reader, data, 0, data.size()).find("it is truncated") != std::string::npos);
    }
    std::filesystem::resize_file(file.path, 0);
    std::filesystem::remove(file.path);
    CHECK(Held{} == before);
  }
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  Reading one{with, by_one_thread()};
  one.progress.report = [&](u64 done) {
    if (done == window) std::filesystem::resize_file(file.path, 3 * window + 10);
  };
  CHECK(one.read(reader, data, 0, data.size()).find("it is truncated") != std::string::npos);
  CHECK(one.counts.mapped == 3 * window);
}

TEST_CASE("zeros behind the new end of a file that loses part of a page during the copy are not taken for data") {
  const Application with;
  const auto data = random_bytes(window, 158);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  Reading one{with};
  const Gate gate{with};
  const std::jthread shortener{[&] {
    while (fake().calls("cuEventRecord") == 0) std::this_thread::yield();
    std::filesystem::resize_file(file.path, data.size() - 10);
    gate.open();
  }};
  fake().fail(nullptr, 0, 0, 0);
  CHECK(one.read(reader, data, 0, data.size()).find("it is truncated") != std::string::npos);
  CHECK(one.counts.mapped == 0);
}

TEST_CASE("when a reading of mapped pages returns, the data is on the GPU and the file may change") {
  const Application with;
  const auto data = random_bytes(1_MiB, 159), other = random_bytes(1_MiB, 160);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  Transfers transfers{with_mapping()};
  ReadCounts counts;
  Progress progress;
  const Gate gate{with};
  const std::jthread opener{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    gate.open();
  }};
  transfers.read(reader, {{{0, data.size(), with.on_gpu()}}}, with.stream->get(), counts, progress);
  CHECK(counts.mapped == data.size());
  CHECK(same(with.on_gpu(), data.data(), data.size()));
}

TEST_CASE("a reading of mapped pages that is cancelled ends with whole windows and says so, and nothing stays pinned") {
  const Application with;
  const auto data = random_bytes(1_MiB, 161);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  const Held before;
  for (const u64 last : {u64{0}, window, 3 * window}) {
    Reading one{with, by_one_thread()};
    one.progress.cancelled = last == 0;
    one.progress.report = [&](u64 done) { one.progress.cancelled = done >= last; };
    CHECK(one.read(reader, data, 0, data.size()).find("was cancelled") != std::string::npos);
    CHECK(one.counts.mapped == last);
    CHECK(one.progress.done == last);
  }
  CHECK(Held{} == before);
}

TEST_CASE("files are mapped while another stream is captured") {
  const Application with;
  const auto data = random_bytes(1_MiB, 162);
  const CachedFile file{data};
  const FileReader reader{file.path.string()};
  Reading one{with};
  CHECK(one.read(reader, data, 0, window) == "");
  one.progress.done = one.counts.mapped = 0;
  const Stream other{the_driver()};
  const Capture capture{other.get()};
  CHECK(one.read(reader, data, 0, data.size()) == "");
  CHECK(one.counts.mapped == data.size());
  the_driver().cuGraphDestroy(capture.end());
}
