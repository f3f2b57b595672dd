// Host memory that is registered because many copies use it.
#include <fcntl.h>
#include <sys/mman.h>

#include <filesystem>
#include <thread>

#include "file_faults.hpp"
#include "host/shared_file.hpp"

using namespace linkscope;

namespace {

std::string method(Transfers& transfers, const Application& with, const void* src, u64 bytes = 1_MiB) {
  return transfers.method_of({with.on_gpu(), src, bytes, with.stream->get()});
}

}  // namespace

TEST_CASE("copies of registered memory are as from pinned memory until the registration ends") {
  const Application with;
  const Pages pages{4_MiB};
  const u64 held = fake().held();
  {
    Transfers transfers{small_chunks()};
    CHECK(method(transfers, with, pages.at()) == "ring_to_gpu");
    transfers.register_memory(pages.at(), 3_MiB);
    CHECK(transfers.registered_bytes() == 3_MiB);
    CHECK(method(transfers, with, pages.at(2_MiB)) == "plain");
    transfers.register_memory(pages.at(1_MiB), 1_MiB);  // a part of what is pinned already
    CHECK(transfers.registered_bytes() == 3_MiB);
    transfers.unregister_memory(pages.at());
    CHECK(method(transfers, with, pages.at(1_MiB)) == "plain");
    transfers.unregister_memory(pages.at(1_MiB));
    CHECK(transfers.registered_bytes() == 0);
    CHECK(method(transfers, with, pages.at(1_MiB)) == "ring_to_gpu");
    CHECK(error_of([&] { transfers.unregister_memory(pages.at()); }).find("no registered range begins here") == 0);
    transfers.register_memory(pages.at(), 1_MiB);
    transfers.register_memory(pages.at(), 1_MiB);
  }
  CHECK(fake().held() == held);  // the end of the library ends all
}

TEST_CASE("a file that is mapped and registered goes to a GPU from its page cache by one call of the driver") {
  const Application with;
  Transfers transfers{small_chunks()};
  auto data = random_bytes(2_MiB, 141);
  const TemporaryFile file{data};
  const Descriptor opened{open(file.path.c_str(), O_RDWR | O_CLOEXEC)};
  void* mapped = mmap(nullptr, data.size(), PROT_READ, MAP_SHARED, opened.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  transfers.register_memory(mapped, data.size());
  CHECK(method(transfers, with, mapped, data.size()) == "plain");
  for (int turn = 0; turn < 2; ++turn) {
    fake().fail(nullptr, 0, 0, 0);  // count calls anew
    transfers.copy({with.on_gpu(), mapped, data.size(), with.stream->get()});
    CHECK(fake().calls("cuMemcpyAsync") == 1);
    with.stream->synchronize();
    CHECK(same(with.on_gpu(), data.data(), data.size()));
    data[5] ^= std::byte{1};  // the file changes, and so does its page cache
    CHECK(pwrite(opened.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
  }
  transfers.unregister_memory(mapped);
  munmap(mapped, data.size());
}

TEST_CASE("a registration ends after the GPU's work on its memory") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages pages{1_MiB};
  const auto data = random_bytes(1_MiB, 140);
  std::memcpy(pages.at(), data.data(), data.size());
  transfers.register_memory(pages.at(), 1_MiB);
  const Gate gate{with};
  transfers.copy({with.on_gpu(), pages.at(), 1_MiB, with.stream->get()});
  CHECK_FALSE(same(with.on_gpu(), data.data(), data.size()));
  const std::jthread opener{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{30});
    gate.open();
  }};
  transfers.unregister_memory(pages.at());
  CHECK(same(with.on_gpu(), data.data(), data.size()));
}

TEST_CASE("memory that somebody else pinned stays as it is, and memory that is pinned in part is refused") {
  const Application with;
  Transfers transfers{small_chunks()};
  const PinnedMemory pinned{the_driver(), 1_MiB, 0};
  const Pages pages{2_MiB};
  LINKSCOPE_CU(the_driver(), cuMemHostRegister, pages.at(), 1_MiB, CU_MEMHOSTREGISTER_PORTABLE);
  CHECK(method(transfers, with, pages.at()) == "plain");
  const u64 held = fake().held();
  for (std::byte* start : {pinned.data(), pages.at()}) {
    transfers.register_memory(start, 1_MiB);
    CHECK(transfers.registered_bytes() == 0);
    transfers.unregister_memory(start);
    CHECK(method(transfers, with, start) == "plain");
  }
  CHECK(error_of([&] { transfers.register_memory(pages.at(), 2_MiB); }).find("pinned in part") != std::string::npos);
  const Pages middle{3_MiB};
  LINKSCOPE_CU(the_driver(), cuMemHostRegister, middle.at(1_MiB), 1_MiB, CU_MEMHOSTREGISTER_PORTABLE);
  CHECK(error_of([&] { transfers.register_memory(middle.at(), 3_MiB); }).find("is pinned already") !=
        std::string::npos);
  LINKSCOPE_CU(the_driver(), cuMemHostUnregister, middle.at(1_MiB));
  CHECK(fake().held() == held);
  LINKSCOPE_CU(the_driver(), cuMemHostUnregister, pages.at());
}

TEST_CASE("the bound of registered memory is kept, and what cannot be registered is refused with the cure") {
  const Application with;
  Options options = small_chunks();
  options.registered_bytes = 3_MiB;
  Transfers transfers{options};
  const Pages pages{8_MiB}, hidden{1_MiB, PROT_NONE};
  const auto refused = [&](void* start, u64 bytes) {
    return error_of([&] { transfers.register_memory(start, bytes); });
  };
  transfers.register_memory(pages.at(), 2_MiB);
  CHECK(refused(pages.at(4_MiB), 2_MiB).find("2 MiB are registered, and 2 MiB more would exceed the bound of 3 MiB") ==
        0);
  CHECK(refused(pages.at(4_MiB), 1_MiB).empty());
  CHECK(refused(with.on_gpu(), 1_MiB).find("memory of GPU ") == 0);
  CHECK(refused(hidden.at(), 1_MiB).find("no memory that this process can read") != std::string::npos);
  CHECK(refused(pages.at(), 0).find("0 B cannot be registered") != std::string::npos);
  CHECK(refused(nullptr, 1_MiB).find("no memory that this process can read") != std::string::npos);
  CHECK(transfers.registered_bytes() == 3_MiB);
}

TEST_CASE("memory that can only be read is registered as a source, and no copy writes to it until that ends") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages read_only{4_MiB, PROT_READ};
  CHECK(method(transfers, with, read_only.at()) == "ring_to_gpu");
  transfers.register_memory(read_only.at(), 4_MiB);
  CHECK(method(transfers, with, read_only.at()) == "plain");
  transfers.copy({with.on_gpu(), read_only.at(), 1_MiB, with.stream->get()});
  for (const u64 bytes : {u64{8}, 2_MiB}) {
    const CopyRequest request{read_only.at(1_MiB), with.on_gpu(), bytes, with.stream->get()};
    CHECK(error_of([&] { transfers.copy(request); }).find("could only read it") != std::string::npos);
    const std::vector<Block> blocks{
        {reinterpret_cast<u64>(with.on_gpu(4_MiB)), reinterpret_cast<u64>(with.on_gpu()), 8},
        {reinterpret_cast<u64>(request.dst), reinterpret_cast<u64>(request.src), bytes}};
    CHECK(error_of([&] { transfers.copy_blocks(blocks, with.stream->get()); }).find("could only read it") !=
          std::string::npos);
  }
  transfers.unregister_memory(read_only.at());
  CHECK(method(transfers, with, read_only.at()) == "ring_to_gpu");
  const Pages written{1_MiB};
  transfers.copy({written.at(), with.on_gpu(), 1_MiB, with.stream->get()});
}

TEST_CASE("what is registered as a source ends exactly at its range, and copies of 0 B are no copies to it") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages pages{4_MiB};
  mprotect(pages.at(1_MiB), 2_MiB, PROT_READ);
  transfers.register_memory(pages.at(1_MiB), 2_MiB);
  const auto refusal = [&](u64 offset, u64 bytes) {
    return error_of([&] { transfers.copy({pages.at(offset), with.on_gpu(), bytes, with.stream->get()}); });
  };
  CHECK(refusal(1_MiB - 8, 8).empty());
  CHECK(refusal(3_MiB, 8).empty());
  CHECK(refusal(2_MiB, 0).empty());
  for (const auto& [offset, bytes] : {std::pair{1_MiB - 8, u64{9}}, {3_MiB - 1, 8}, {0, 4_MiB}, {1_MiB, 1}})
    CHECK(refusal(offset, bytes).find("end that registration first") != std::string::npos);
  const std::vector<Block> blocks{
      {reinterpret_cast<u64>(pages.at()), reinterpret_cast<u64>(with.on_gpu()), 8},
      {reinterpret_cast<u64>(pages.at(2_MiB)), reinterpret_cast<u64>(with.on_gpu(1_MiB)), 0}};
  transfers.copy_blocks(blocks, with.stream->get());
}

TEST_CASE("a part that is registered within a source is a source too, until both registrations have ended") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages pages{2_MiB, PROT_READ}, other{1_MiB};
  const auto refusal = [&](std::byte* dst, u64 bytes) {
    return error_of([&] { transfers.copy({dst, with.on_gpu(), bytes, with.stream->get()}); });
  };
  transfers.register_memory(pages.at(), 2_MiB);
  mprotect(pages.at(), 2_MiB, PROT_READ | PROT_WRITE);
  transfers.register_memory(pages.at(1_MiB), 1_MiB);  // pinned for reading with the whole
  transfers.register_memory(other.at(), 1_MiB);
  CHECK(refusal(other.at(), 1_MiB).empty());
  transfers.unregister_memory(pages.at());
  for (const u64 offset : {0_MiB, 1_MiB})
    CHECK(refusal(pages.at(offset), 1_MiB).find("end that registration first") != std::string::npos);
  transfers.unregister_memory(pages.at(1_MiB));
  for (const u64 offset : {0_MiB, 1_MiB}) CHECK(refusal(pages.at(offset), 1_MiB).empty());
}

TEST_CASE("a source that somebody else pinned, or that lies in memory pinned for writing, is no destination either") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages theirs{1_MiB, PROT_READ}, ours{2_MiB};
  const auto refusal = [&](std::byte* dst) {
    return error_of([&] { transfers.copy({dst, with.on_gpu(), 1_MiB, with.stream->get()}); });
  };
  LINKSCOPE_CU(the_driver(), cuMemHostRegister, theirs.at(), 1_MiB, CU_MEMHOSTREGISTER_READ_ONLY);
  transfers.register_memory(theirs.at(), 1_MiB);
  CHECK(refusal(theirs.at()).find("end that registration first") != std::string::npos);
  transfers.unregister_memory(theirs.at());
  LINKSCOPE_CU(the_driver(), cuMemHostUnregister, theirs.at());
  transfers.register_memory(ours.at(), 2_MiB);
  mprotect(ours.at(1_MiB), 1_MiB, PROT_READ);
  transfers.register_memory(ours.at(1_MiB), 1_MiB);
  CHECK(refusal(ours.at()).empty());
  CHECK(refusal(ours.at(1_MiB)).find("end that registration first") != std::string::npos);
  transfers.unregister_memory(ours.at(1_MiB));
  mprotect(ours.at(1_MiB), 1_MiB, PROT_READ | PROT_WRITE);
  CHECK(refusal(ours.at(1_MiB)).empty());
  transfers.unregister_memory(ours.at());
}

TEST_CASE("a copy that was prepared before its destination was registered as a source is refused") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages pages{2_MiB};
  for (const u64 bytes : {u64{8}, 2_MiB}) {  // one call of the driver, and a ring
    auto prepared = transfers.prepare({pages.at(), with.on_gpu(), bytes, with.stream->get()});
    prepared.run();
    mprotect(pages.at(), 2_MiB, PROT_READ);
    transfers.register_memory(pages.at(), 2_MiB);
    CHECK(error_of([&] { prepared.run(); }).find("end that registration first") != std::string::npos);
    transfers.unregister_memory(pages.at());
    mprotect(pages.at(), 2_MiB, PROT_READ | PROT_WRITE);
    prepared.run();
  }
}

TEST_CASE("a file on a disk is pinned if it is mapped for reading or privately, and refused by its name if not") {
  const Application with;
  Transfers transfers{small_chunks()};
  const File file{random_bytes(2_MiB, 5)};
  const Descriptor opened{open(file.path.c_str(), O_RDWR | O_CLOEXEC)};
  const auto refusal = [&](int rights, int flags) {
    void* mapped = mmap(nullptr, 2_MiB, rights, flags, opened.get(), 0);
    const std::string error = error_of([&] {
      transfers.register_memory(mapped, 2_MiB);
      transfers.unregister_memory(mapped);
    });
    munmap(mapped, 2_MiB);
    return error;
  };
  CHECK(refusal(PROT_READ, MAP_SHARED).empty());
  CHECK(refusal(PROT_READ | PROT_WRITE, MAP_PRIVATE).empty());
  const std::string error = refusal(PROT_READ | PROT_WRITE, MAP_SHARED);
  CHECK(error.find("mapped from " + file.path.string() + " for writing") != std::string::npos);
  CHECK(error.find("mode \"r\" of numpy.memmap") != std::string::npos);
  {  // the file is not to blame for other errors
    const Failing failing{"cuMemHostRegister", 0, ~0ull, CUDA_ERROR_OUT_OF_MEMORY};
    CHECK(refusal(PROT_READ | PROT_WRITE, MAP_SHARED).find("cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY") == 0);
  }
  std::filesystem::remove(file.path);
  CHECK(refusal(PROT_READ | PROT_WRITE, MAP_SHARED).find(file.path.string() + " (deleted) for writing") !=
        std::string::npos);
}

TEST_CASE("memory that is mapped with MAP_SHARED without a file on a disk is registered") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Descriptor nameless{memfd_create("linkscope", MFD_CLOEXEC)};
  REQUIRE(ftruncate(nameless.get(), 1_MiB) == 0);
  for (const int descriptor : {nameless.get(), -1}) {
    void* mapped = mmap(nullptr, 1_MiB, PROT_READ | PROT_WRITE,
                        descriptor < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, descriptor, 0);
    REQUIRE(mapped != MAP_FAILED);
    transfers.register_memory(mapped, 1_MiB);
    CHECK(method(transfers, with, mapped) == "plain");
    transfers.unregister_memory(mapped);
    munmap(mapped, 1_MiB);
  }
}

TEST_CASE("a file that covers a part of a range, or has a space in its name, is found") {
  const File file{random_bytes(1_MiB, 6)};
  const auto path = file.path.string() + " of values";
  std::filesystem::rename(file.path, path);
  const Descriptor opened{open(path.c_str(), O_RDWR | O_CLOEXEC)};
  const Pages pages{3_MiB};
  REQUIRE(mmap(pages.at(1_MiB), 1_MiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, opened.get(), 0) ==
          pages.at(1_MiB));
  CHECK(shared_file(pages.at(), 3_MiB) == path);
  CHECK(shared_file(pages.at(2_MiB - 1), 1) == path);
  CHECK(shared_file(pages.at(), 1_MiB).empty());
  CHECK(shared_file(pages.at(2_MiB), 1_MiB).empty());
  std::filesystem::remove(path);
}

TEST_CASE("memory that was freed while it was registered is an error for copies and for the end of the registration") {
  const Application with;
  Transfers transfers{small_chunks()};
  Pages pages{1_MiB};
  std::byte* start = pages.at();
  CHECK(method(transfers, with, start) == "ring_to_gpu");
  const u64 held = fake().held();
  transfers.register_memory(start, 1_MiB);
  pages.free();
  for (const bool to_gpu : {true, false}) {
    const CopyRequest request{to_gpu ? with.on_gpu() : start, to_gpu ? start : with.on_gpu(), 1_MiB,
                              with.stream->get()};
    CHECK(error_of([&] { transfers.copy(request); }).find("registered and then freed") != std::string::npos);
  }
  CHECK(error_of([&] { transfers.unregister_memory(start); }).find("registered and then freed") != std::string::npos);
  CHECK(fake().held() == held);
  CHECK(error_of([&] { transfers.unregister_memory(start); }).find("no registered range") == 0);
}

TEST_CASE("an error of the driver leaves memory unregistered, or registered if it cannot end that") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages pages{1_MiB};
  CHECK(method(transfers, with, pages.at()) == "ring_to_gpu");  // a GPU is in use, for which the end waits
  const u64 held = fake().held();
  {
    const Failing failing{"cuMemHostRegister"};
    CHECK(error_of([&] { transfers.register_memory(pages.at(), 1_MiB); }).find("cuMemHostRegister") !=
          std::string::npos);
  }
  CHECK((fake().held() == held && transfers.registered_bytes() == 0));
  transfers.register_memory(pages.at(), 1_MiB);
  for (const char* symbol : {"cuMemHostUnregister", "cuCtxSynchronize"}) {
    CAPTURE(symbol);
    const Failing failing{symbol};
    CHECK(error_of([&] { transfers.unregister_memory(pages.at()); }).find(symbol) != std::string::npos);
    CHECK(transfers.registered_bytes() == 1_MiB);
  }
  transfers.unregister_memory(pages.at());
  CHECK((fake().held() == held && transfers.registered_bytes() == 0));
}
