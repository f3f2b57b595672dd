// Memory that an application must not name, for every function of the library: freed, of nobody, or of another GPU.
#include <sys/mman.h>

#include "random_blocks.hpp"
#include "saves_testing.hpp"
#include "transfer/asynchronous.hpp"

using namespace linkscope;

namespace {

constexpr u64 bytes = 1_MiB;

/// A function of the library with memory of the caller.
struct Function {
  const char* name;
  std::string (*from)(Transfers&, std::byte* good, const std::byte* bad, CUstream);  // returns the error
  std::string (*to)(Transfers&, std::byte* bad, const std::byte* good, CUstream);
};

std::string copy(Transfers& transfers, std::byte* dst, const std::byte* src, CUstream stream) {
  return error_of([&] { transfers.copy({dst, src, bytes, stream}); });
}

std::string prepare(Transfers& transfers, std::byte* dst, const std::byte* src, CUstream stream) {
  return error_of([&] { transfers.prepare({dst, src, bytes, stream}).run(); });
}

std::string start(Transfers& transfers, std::byte* dst, const std::byte* src, CUstream stream) {
  return error_of([&] {
    AsynchronousCopy copy{transfers, {dst, src, bytes, stream}};
    copy.wait();
  });
}

std::string copy_blocks(Transfers& transfers, std::byte* dst, const std::byte* src, CUstream stream) {
  std::vector<Block> blocks;
  for (u64 at = 0; at < bytes; at += 8_KiB)
    blocks.push_back({reinterpret_cast<u64>(dst + at), reinterpret_cast<u64>(src + at), 4_KiB});
  return error_of([&] { transfers.copy_blocks(blocks, stream); });
}

constexpr Function functions[] = {
    {"copy", copy, copy}, {"prepare", prepare, prepare}, {"start", start, start}, {"blocks", copy_blocks, copy_blocks}};

std::string read(Transfers& transfers, const FileReader& file, std::byte* dst, CUstream stream) {
  ReadCounts counts;
  Progress progress;
  return error_of([&] { transfers.read(file, {{{0, bytes, dst}}}, stream, counts, progress); });
}

std::string save(Transfers& transfers, const std::string& path, const std::byte* src, CUstream stream) {
  WriteCounts counts;
  Progress progress;
  return error_of([&] { transfers.save(path, {{{src, bytes, stream}}}, false, counts, progress); });
}

}  // namespace

TEST_CASE("freed and foreign pointers are refused by every function, and the other side keeps its bytes") {
  const Application with;
  const SavesFolder folder;
  const File file{random_bytes(bytes, 220)};
  const FileReader reader{file.path.string()};
  Transfers transfers{small_chunks()};
  Bytes host(bytes, std::byte{7});
  std::memset(with.on_gpu(), 7, bytes);
  std::byte* freed = nullptr;
  {
    DeviceMemory memory{the_driver(), bytes};
    freed = reinterpret_cast<std::byte*>(memory.address());
  }
  // Nobody else may get these addresses meanwhile, as the stack of a thread.
  REQUIRE(mmap(freed, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == freed);
  auto* foreign = reinterpret_cast<std::byte*>(0x1000);  // no process has this page
  for (std::byte* bad : {freed, foreign}) {
    CAPTURE(static_cast<const void*>(bad));
    for (const auto& [name, from, to] : functions)
      for (std::byte* good : {host.data(), with.on_gpu()}) {
        CAPTURE(std::string{name});
        const auto reading = from(transfers, good, bad, with.stream->get()),
                   writing = to(transfers, bad, good, with.stream->get());
        CHECK_MESSAGE(reading.find("no memory that this process can read") != std::string::npos, reading);
        CHECK_MESSAGE(writing.find("no memory that this process can write") != std::string::npos, writing);
      }
    CHECK(read(transfers, reader, bad, with.stream->get()).find("none that this process can write") !=
          std::string::npos);
    CHECK(save(transfers, folder.file(), bad, with.stream->get()).find("none that this process can read") !=
          std::string::npos);
  }
  munmap(freed, bytes);
  with.stream->synchronize();
  CHECK(folder.count() == 0);
  CHECK(host == Bytes(bytes, std::byte{7}));
  CHECK(same(with.on_gpu(), host.data(), bytes));
}

TEST_CASE("numbers that are taken for addresses are refused by copies of any size") {
  const Application with;
  Transfers transfers{small_chunks()};
  for (const u64 number : {u64{8}, u64{0x1000}, u64{0xffff}, ~u64{0}, ~u64{0} - 4095, u64{1} << 63})
    for (const u64 size : {u64{1}, u64{64}, 4_KiB, 2_MiB}) {
      CAPTURE(number);
      CAPTURE(size);
      auto* bad = reinterpret_cast<std::byte*>(number);
      const auto reading = error_of([&] { transfers.copy({with.on_gpu(), bad, size, with.stream->get()}); });
      const auto writing = error_of([&] { transfers.copy({bad, with.on_gpu(), size, with.stream->get()}); });
      CHECK_MESSAGE(reading.find("no memory that this process can read") != std::string::npos, reading);
      CHECK_MESSAGE(writing.find("no memory that this process can write") != std::string::npos, writing);
    }
}

TEST_CASE("memory of another GPU than the stream's is right by every function") {
  const Application with;
  const OnOther elsewhere{with, bytes};
  const SavesFolder folder;
  const auto data = random_bytes(bytes, 221);
  const File file{data};
  const FileReader reader{file.path.string()};
  const PinnedMemory pinned{the_driver(), bytes, 0};
  Bytes host = data;
  std::memcpy(pinned.data(), data.data(), bytes);
  std::memcpy(with.on_gpu(), data.data(), bytes);
  Transfers transfers{small_chunks()};
  const auto arrived = [&](const std::byte* at, bool in_blocks) {
    with.stream->synchronize();
    bool right = true;
    for (u64 i = 0; i < bytes; i += 8_KiB) right = right && same(at + i, data.data() + i, in_blocks ? 4_KiB : 8_KiB);
    return right;
  };
  for (const auto& [name, from, to] : functions)
    for (std::byte* here : {host.data(), pinned.data(), with.on_gpu()}) {
      CAPTURE(std::string{name});
      const bool in_blocks = std::string{name} == "blocks";
      std::memset(elsewhere.at(), 0, bytes);
      CHECK(to(transfers, elsewhere.at(), here, with.stream->get()) == "");
      CHECK(arrived(elsewhere.at(), in_blocks));
      std::memcpy(elsewhere.at(), data.data(), bytes);
      std::memset(here, 0, bytes);
      CHECK(from(transfers, here, elsewhere.at(), with.stream->get()) == "");
      CHECK(arrived(here, in_blocks));
      std::memcpy(here, data.data(), bytes);
    }
  std::memset(elsewhere.at(), 0, bytes);
  CHECK(read(transfers, reader, elsewhere.at(), with.stream->get()) == "");
  CHECK(arrived(elsewhere.at(), false));
  CHECK(save(transfers, folder.file(), elsewhere.at(), with.stream->get()) == "");
  CHECK(content_of(folder.file()) == data);
}

TEST_CASE("a protected page between good ones is refused by what CPU threads copy, with its place") {
  if (!says_access()) return;  // Linux before 6.11, and sandboxes
  const Application with;
  Transfers transfers{small_chunks()};
  auto* host =
      static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(host, 3, bytes);
  constexpr u64 hole = 512_KiB;
  Bytes other(bytes, std::byte{7});
  for (const int rights : {PROT_NONE, PROT_READ}) {
    REQUIRE(mprotect(host + hole, 4_KiB, rights) == 0);
    const bool readable = rights == PROT_READ;
    for (std::byte* good : {other.data(), with.on_gpu()}) {
      std::memset(good, 7, bytes);
      for (const auto& [name, from, to] : {functions[0], functions[1], functions[2]}) {
        CAPTURE(std::string{name});
        const auto writing = to(transfers, host, good, with.stream->get());
        CHECK_MESSAGE(writing.find("can write at byte 524288") != std::string::npos, writing);
        const auto reading = from(transfers, good, host, with.stream->get());
        if (readable) CHECK(reading == "");
        else CHECK_MESSAGE(reading.find("can read at byte 524288") != std::string::npos, reading);
        with.stream->synchronize();
        CHECK(good[0] == std::byte{static_cast<unsigned char>(readable ? 3 : 7)});
        std::memset(good, 7, bytes);
      }
    }
    // Of a save, the CPU copies the host's part between those of a GPU.
    const SavesFolder folder;
    const std::vector<FileSource> sources{{with.on_gpu(), 4_KiB, with.stream->get()}, {host, bytes, nullptr}};
    WriteCounts counts;
    Progress progress;
    const auto saving = error_of([&] { transfers.save(folder.file(), sources, false, counts, progress); });
    CHECK((readable ? saving == "" : saving.find("none that this process can read") != std::string::npos));
  }
  CHECK(host[0] == std::byte{3});
  munmap(host, bytes);
}

TEST_CASE("parts around a protected page are copied, and so is all of a range whose mappings follow each other") {
  const Application with;
  Transfers transfers{small_chunks()};
  auto* host =
      static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(host, 3, bytes);
  mprotect(host + 512_KiB, 4_KiB, PROT_READ);  // three mappings
  CHECK(copy(transfers, with.on_gpu(), host, with.stream->get()) == "");
  mprotect(host + 512_KiB, 4_KiB, PROT_NONE);
  for (const u64 at : {u64{0}, 516_KiB}) {
    const u64 part = at ? bytes - at : 512_KiB;
    CHECK(error_of([&] { transfers.copy({with.on_gpu(at), host + at, part, with.stream->get()}); }) == "");
    CHECK(error_of([&] { transfers.copy({host + at, with.on_gpu(at), part, with.stream->get()}); }) == "");
  }
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), Bytes(bytes, std::byte{3}).data(), bytes));
  munmap(host, bytes);
}
