// Copies of core/transfer: their data, their order, and the method that they choose.
#include <sys/mman.h>

#include <chrono>
#include <set>
#include <thread>

#include "random_blocks.hpp"
#include "transfer/asynchronous.hpp"
#include "transfer/ring.hpp"

using namespace linkscope;

namespace {

u64 made_by(const Transfers& transfers, MethodId id) { return transfers.count_of(id); }

}  // namespace

TEST_CASE("a pageable source goes to a GPU through the ring and may be changed when the call returns") {
  const Application with;
  Transfers transfers{small_chunks()};
  auto source = random_bytes(5_MiB + 13, 1);
  const auto kept = source;
  transfers.copy({with.on_gpu(3), source.data(), source.size(), with.stream->get()});
  std::fill(source.begin(), source.end(), std::byte{0});
  with.stream->synchronize();
  CHECK(same(with.on_gpu(3), kept.data(), kept.size()));
  CHECK(made_by(transfers, MethodId::ring_to_gpu) == 1);
  CHECK(transfers.latest_fallback().empty());
}

TEST_CASE("a pageable destination holds the data when the call returns") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(3_MiB + 1, 2);
  std::memcpy(with.on_gpu(), source.data(), source.size());
  Bytes destination(source.size() + 2, std::byte{7});
  transfers.copy({destination.data() + 1, with.on_gpu(), source.size(), with.stream->get()});
  CHECK(same(destination.data() + 1, source.data(), source.size()));
  CHECK(destination.front() == std::byte{7});
  CHECK(destination.back() == std::byte{7});
  CHECK(made_by(transfers, MethodId::ring_to_host) == 1);
}

TEST_CASE("a destination that nobody touched is recognized, or named by the caller") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(4_MiB, 3);
  std::memcpy(with.on_gpu(), source.data(), source.size());
  void* fresh = mmap(nullptr, source.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CopyRequest request{fresh, with.on_gpu(), source.size(), with.stream->get()};
  transfers.copy(request);
  CHECK(same(fresh, source.data(), source.size()));
  request.fresh = true;
  CHECK(std::string{transfers.method_of(request)} == "ring_to_fresh");
  transfers.copy(request);
  CHECK(made_by(transfers, MethodId::ring_to_fresh) >= 1);
  CHECK(made_by(transfers, MethodId::ring_to_host) + made_by(transfers, MethodId::ring_to_fresh) == 2);
  munmap(fresh, source.size());
}

TEST_CASE("each pair of memories has its method") {
  const Application with;
  Transfers transfers{small_chunks()};
  Bytes host(1_MiB), host_2(1_MiB);
  const PinnedMemory pinned{the_driver(), 1_MiB, 0};
  const auto managed = DeviceMemory::managed(the_driver(), 1_MiB);
  auto* moving = reinterpret_cast<std::byte*>(managed.address());
  const auto method = [&](void* dst, const void* src, u64 bytes = 1_MiB) {
    return std::string{transfers.method_of({dst, src, bytes, with.stream->get()})};
  };
  std::fill(host.begin(), host.end(), std::byte{1});
  CHECK(method(with.on_gpu(), host.data()) == "ring_to_gpu");
  CHECK(method(host.data(), with.on_gpu()) == "ring_to_host");
  CHECK(method(host.data(), host_2.data()) == "host");
  CHECK(method(with.on_gpu(), pinned.data()) == "plain");
  CHECK(method(pinned.data(), with.on_gpu()) == "plain");
  CHECK(method(with.on_gpu(), with.on_gpu(2_MiB)) == "plain");
  CHECK(method(moving, host.data()) == "plain");
  CHECK(method(with.on_gpu(), host.data(), 32_KiB) == "plain");
}

TEST_CASE("memory of another GPU than the stream's goes there and back by copy engines, which reach it") {
  const Application with;
  const OnOther elsewhere{with, 4_MiB};
  Transfers transfers{small_chunks_by_kernel()};
  const auto source = random_bytes(3_MiB + 1, 9);
  Bytes back(source.size());
  std::ranges::fill(back, std::byte{1});
  for (const CUstream stream : {with.stream->get(), CUstream{nullptr}}) {
    fake().fail(nullptr, 0, 0, 0);
    transfers.copy({elsewhere.at(5), source.data(), source.size(), stream});
    transfers.copy({back.data(), elsewhere.at(5), source.size(), stream});
    CHECK(fake().calls("cuLaunchKernel") == 0);
    CHECK(back == source);
    std::ranges::fill(back, std::byte{1});
  }
  CHECK(made_by(transfers, MethodId::ring_to_gpu) == 2);
  CHECK(made_by(transfers, MethodId::ring_to_host) == 2);
  CHECK(transfers.latest_fallback().empty());
}

TEST_CASE("the call returns while the GPU has not begun, and slots stay in use until it has read them") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto first = random_bytes(1_MiB, 4), second = random_bytes(1_MiB, 5);
  {
    const Gate gate{with};
    auto source = first;
    transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
    source = second;
    transfers.copy({with.on_gpu(1_MiB), source.data(), source.size(), with.stream->get()});
    std::fill(source.begin(), source.end(), std::byte{0});
    CHECK_FALSE(same(with.on_gpu(), first.data(), first.size()));
  }
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), first.data(), first.size()));
  CHECK(same(with.on_gpu(1_MiB), second.data(), second.size()));
}

TEST_CASE("a copy does not wait for another stream that holds all slots") {
  const Application with;
  auto options = small_chunks();
  options.arena_bytes = 4 * options.slot_bytes;
  Transfers transfers{options};
  const Stream other{the_driver()};
  const auto first = random_bytes(512_KiB, 6), second = random_bytes(1_MiB, 7);
  {
    const Gate gate{with};
    transfers.copy({with.on_gpu(), first.data(), first.size(), with.stream->get()});
    transfers.copy({with.on_gpu(1_MiB), second.data(), second.size(), other.get()});
    other.synchronize();
    CHECK(same(with.on_gpu(1_MiB), second.data(), second.size()));
    CHECK(transfers.latest_fallback().find("no free slots") != std::string::npos);
  }
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), first.data(), first.size()));
}

TEST_CASE("slots that the stream delayed are used again, those that were used the longest time ago first") {
  const Application with;
  constexpr u64 slot_bytes = 64_KiB;
  Arena arena{the_driver(), 16 * slot_bytes, slot_bytes};
  const CopyLane lane{0, current_context(), with.stream->get()};
  Gate gate{with};
  auto lease = arena.take(2, lane);
  std::vector<std::byte*> used;
  RingWork work;
  for (u64 i = 0; i < 6; ++i) work.chunks.push_back({i, 1, slot_bytes});
  work.by_cpu = [](std::byte*, Chunk) {};
  work.queue = [&](std::byte* slot, Chunk) {
    used.push_back(slot);
    if (used.size() < 4) return;
    gate.open();
    with.stream->synchronize();
  };
  Movers movers;
  Progress progress;
  SlotRing{the_driver(), lane, lease, 1}.to_gpu(work, movers, progress);
  REQUIRE(used.size() == 6);
  CHECK(std::set<std::byte*>{used.begin(), used.begin() + 4}.size() == 4);  // the stream delays the first four chunks
  CHECK(used[4] == used[0]);
  CHECK(used[5] == used[2]);
}

TEST_CASE("a slot that was taken before the driver refused more pinned memory returns to the arena") {
  const Application with;
  Arena arena{the_driver(), 4 * 64_KiB, 64_KiB};
  const CopyLane lane{0, current_context(), with.stream->get()};
  CHECK(arena.take_free(1).size() == 1);
  {
    const Failing none{"cuMemHostAlloc"};
    CHECK(error_of([&] { (void)arena.take_free(2); }).find("cuMemHostAlloc") != std::string::npos);
    CHECK(error_of([&] { (void)arena.take(2, lane); }).find("cuMemHostAlloc") != std::string::npos);
  }
  CHECK(arena.take_free(4).size() == 4);
}

TEST_CASE("copies of one stream keep their order with the application's own work") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(2_MiB, 8);
  Bytes back(2_MiB, std::byte{9});
  LINKSCOPE_CU(the_driver(), cuMemsetD8Async, with.memory.address(), 1, 2_MiB, with.stream->get());
  transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
  transfers.copy({back.data(), with.on_gpu(), back.size(), with.stream->get()});
  CHECK(same(back.data(), source.data(), source.size()));
  LINKSCOPE_CU(the_driver(), cuMemsetD8Async, with.memory.address(), 1, 2_MiB, with.stream->get());
  transfers.copy({back.data(), with.on_gpu(), back.size(), with.stream->get()});
  CHECK(back == Bytes(back.size(), std::byte{1}));
}

TEST_CASE("the caller's context is current again, also if there was none") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(1_MiB, 9);
  with.other.use();
  transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
  CHECK(current_context() == with.other.context());
  the_driver().cuCtxSetCurrent(nullptr);
  transfers.copy({with.on_gpu(1_MiB), source.data(), source.size(), nullptr});
  transfers.copy({with.on_gpu(2_MiB), source.data(), 100, nullptr});
  CHECK(current_context() == nullptr);
  with.gpu.use();
  LINKSCOPE_CU(the_driver(), cuStreamSynchronize, nullptr);
  CHECK(same(with.on_gpu(1_MiB), source.data(), source.size()));
  CHECK(same(with.on_gpu(2_MiB), source.data(), 100));
}

TEST_CASE("a captured copy is one node of the graph, and a capture elsewhere does not disturb a copy") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(1_MiB, 10), elsewhere = random_bytes(1_MiB, 11);
  const Stream other{the_driver()};
  Capture capture{with.stream->get()};
  transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
  transfers.copy({with.on_gpu(1_MiB), elsewhere.data(), elsewhere.size(), other.get()});
  const CUgraph graph = capture.end();
  other.synchronize();
  CHECK(same(with.on_gpu(1_MiB), elsewhere.data(), elsewhere.size()));
  CHECK(made_by(transfers, MethodId::ring_to_gpu) == 1);
  CHECK_FALSE(same(with.on_gpu(), source.data(), source.size()));
  {
    const ReadyGraph ready{the_driver(), graph};
    LINKSCOPE_CU(the_driver(), cuGraphLaunch, ready.get(), with.stream->get());
    with.stream->synchronize();
  }
  CHECK(same(with.on_gpu(), source.data(), source.size()));
  the_driver().cuGraphDestroy(graph);
}

TEST_CASE("a prepared copy is repeated by one call of the driver, or through the ring") {
  const Application with;
  Transfers transfers{small_chunks()};
  Bytes source(1_MiB);
  for (const u64 bytes : {u64{1}, u64{4096}, 1_MiB}) {
    auto prepared = transfers.prepare({with.on_gpu(), source.data(), bytes, with.stream->get()});
    auto back = transfers.prepare({source.data(), with.on_gpu(), bytes, with.stream->get()});
    for (u64 seed = 0; seed < 3; ++seed) {
      const auto data = random_bytes(bytes, seed);
      std::memcpy(source.data(), data.data(), bytes);
      prepared.run();
      std::fill(source.begin(), source.end(), std::byte{0});
      back.run();
      CHECK(same(source.data(), data.data(), bytes));
    }
  }
}

TEST_CASE("plain mode leaves every copy to the driver") {
  const Application with;
  auto options = small_chunks();
  options.plain = true;
  Transfers transfers{options};
  const auto source = random_bytes(2_MiB, 12);
  transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), source.data(), source.size()));
  CHECK(transfers.arena_bytes() == 0);
  CHECK(made_by(transfers, MethodId::ring_to_gpu) == 0);
}

TEST_CASE("an asynchronous copy reports its progress, ends complete, and leaves the stream's later work alone") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(4_MiB, 13);
  AsynchronousCopy copy{transfers, {with.on_gpu(), source.data(), source.size(), with.stream->get()}};
  copy.wait();
  CHECK(copy.has_ended());
  CHECK(copy.done_bytes() == source.size());
  CHECK(same(with.on_gpu(), source.data(), source.size()));
  Bytes back(source.size());
  AsynchronousCopy home{transfers, {back.data(), with.on_gpu(), back.size(), with.stream->get()}};
  home.wait();
  CHECK(back == source);
}

TEST_CASE("an asynchronous copy begins after the stream's earlier work and can be cancelled while it waits") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(16_MiB, 14);
  std::unique_ptr<AsynchronousCopy> copy;
  {
    const Gate gate{with};
    copy = std::make_unique<AsynchronousCopy>(
        transfers, CopyRequest{with.on_gpu(), source.data(), source.size(), with.stream->get()});
    CHECK_FALSE(copy->has_ended());
    copy->cancel();
  }
  CHECK(error_of([&] { copy->wait(); }).find("cancelled") != std::string::npos);
  CHECK(copy->has_ended());
  CHECK(copy->done_bytes() < source.size());
}

TEST_CASE("wrong requests are refused with the cure") {
  const Application with;
  Transfers transfers{small_chunks()};
  Bytes host(2_MiB, std::byte{1});
  const auto refused = [&](void* dst, const void* src, u64 bytes, CUstream stream) {
    return error_of([&] { transfers.copy({dst, src, bytes, stream}); });
  };
  const auto stream = with.stream->get();
  CHECK(refused(host.data(), host.data() + 10, 100, stream).find("overlap") != std::string::npos);
  CHECK(refused(nullptr, host.data(), 100, stream).find("destination has address 0") != std::string::npos);
  const auto beyond = refused(with.on_gpu(79_MiB), host.data(), 2_MiB, stream);
  CHECK_MESSAGE(
      beyond.find("to memory of different kinds failed; the allocation of the destination ends after 1 MiB") !=
          std::string::npos,
      beyond);
  Pages pages{2_MiB, PROT_READ};
  std::byte* read_only = pages.at();
  CHECK(refused(read_only, with.on_gpu(), 2_MiB, stream).find("can write") != std::string::npos);
  pages.free();
  CHECK(refused(with.on_gpu(), read_only, 2_MiB, stream).find("can read") != std::string::npos);
  CHECK(refused(with.on_gpu(), host.data(), 2_MiB, reinterpret_cast<CUstream>(host.data()))
            .find("stream does not exist") != std::string::npos);
  CHECK(refused(with.on_gpu(), nullptr, 0, stream).empty());
}

TEST_CASE("a size or an offset below 0 is refused in plain words, and not as a large number") {
  const Application with;
  Transfers transfers{small_chunks()};
  Bytes host(4096);
  const File file{host};
  const FileReader reader{file.path.string()};
  const auto stream = with.stream->get();
  constexpr auto negative = static_cast<u64>(-1);
  ReadCounts read;
  WriteCounts written;
  Progress progress;
  const std::vector<Block> block{{with.memory.address(), reinterpret_cast<u64>(host.data()), negative}};
  const auto reads = [&](const FilePiece& piece) {
    return error_of([&] { transfers.read(reader, {{piece}}, stream, read, progress); });
  };
  const auto refused = [](const char* what) { return std::string{what} + " is -1; pass a number of at least 0"; };
  CHECK(error_of([&] { transfers.copy({with.on_gpu(), host.data(), negative, stream}); }) ==
        refused("the size of a copy"));
  CHECK(error_of([&] { (void)transfers.prepare({with.on_gpu(), host.data(), negative, stream}); }) ==
        refused("the size of a copy"));
  CHECK(error_of([&] { const AsynchronousCopy copy{transfers, {with.on_gpu(), host.data(), negative, stream}}; }) ==
        refused("the size of a copy"));
  CHECK(error_of([&] { transfers.copy_blocks(block, stream); }) == refused("the size of a block"));
  CHECK(reads({negative, 8, with.on_gpu()}) == refused("the offset in the file"));
  CHECK(reads({0, negative, with.on_gpu()}) == refused("the size of a piece of the file"));
  CHECK(error_of([&] {
          transfers.save(file.path.string() + "-saved", {{{with.on_gpu(), negative, stream}}}, false, written,
                         progress);
        }) == refused("the size of a source"));
  CHECK(error_of([&] { transfers.register_memory(host.data(), negative); }) == refused("the size of the memory"));
}
